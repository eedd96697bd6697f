"""Controls torch while the user's code runs: nothing is compiled, and without a GPU "cuda" is the
CPU.

Global settings of torch (default dtype, default device, gradients, random state) are restored,
because the same process judges other tasks. Only the thread that holds `USER_CODE_LOCK` may enter
these contexts; `user_code` takes the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

USER_CODE_LOCK = threading.RLock()
"""Held while the user's code runs, because threads share its globals and torch's settings."""

_running = threading.local()
_SEED = 0
_IS_CUDA: Any = vars(torch.Tensor.__base__)["is_cuda"].__get__
_EAGER = "torch.compile and torch.jit are left out: the file's code runs eagerly"


@contextmanager
def user_code() -> Iterator[None]:
    """Hold the lock while the user's code runs in this thread."""
    with USER_CODE_LOCK:
        before = user_code_runs()
        _running.here = True
        try:
            yield
        finally:
            _running.here = before


def user_code_runs() -> bool:
    """Whether this thread is within `user_code`."""
    return bool(getattr(_running, "here", False))


@contextmanager
def torch_as_it_was() -> Iterator[None]:
    """Restore global settings at the end. Random numbers within the block are always the same."""
    dtype, device, gradients = (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
    )
    with torch.random.fork_rng():
        torch.manual_seed(_SEED)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            if torch.get_default_device() != device:
                torch.set_default_device(None if device.type == "cpu" else device)
            torch.set_grad_enabled(gradients)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Use this dtype as torch's default within the block."""
    kept = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(kept)


@contextmanager
def nothing_compiled(notes: list[str]) -> Iterator[None]:
    """Make `torch.compile` and `torch.jit` return their argument within the block, with a note."""

    def note() -> None:
        if _EAGER not in notes:
            notes.append(_EAGER)

    def compiled(model: Any = None, **options: Any) -> Any:
        note()
        return (lambda function: function) if model is None else model

    def scripted(function: Any, *args: Any, **options: Any) -> Any:
        note()
        return function

    with (
        patch.object(torch, "compile", compiled),
        patch.object(torch.jit, "script", scripted),
        patch.object(torch.jit, "trace", scripted),
        patch.object(torch.jit, "freeze", scripted),
        patch.object(torch.jit, "optimize_for_inference", scripted),
    ):
        yield


def eager_form(function: Any, notes: list[str]) -> Any:
    """The function or module inside a result of `torch.compile`."""
    while (
        inner := vars(function).get("_torchdynamo_orig_callable")
        if hasattr(function, "__dict__")
        else None
    ) is not None or (inner := getattr(function, "_orig_mod", None)) is not None:
        function = inner
        if _EAGER not in notes:
            notes.append(_EAGER)
    return function


class CudaIsCpu(TorchFunctionMode):
    """Gives the CPU to code that asks for a GPU; `moved` says whether any code did."""

    def __init__(self) -> None:
        super().__init__()
        self.moved = False

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            self.moved = True
            return args[0]
        if function == _IS_CUDA:
            return True
        if function == torch.Tensor.to and any(
            type(value) is int for value in (*args, *kwargs.values())
        ):
            args = [torch.device("cpu") if type(value) is int else value for value in args]
            kwargs = {
                name: torch.device("cpu") if type(value) is int else value
                for name, value in kwargs.items()
            }
        args = tuple(map(self._on_cpu, args))
        kwargs = {name: self._on_cpu(value) for name, value in kwargs.items()}
        if (
            kwargs.get("device") is None
            and function in _device_constructors()
            and torch.get_default_device().type == "cuda"
        ):
            self.moved = True
            kwargs["device"] = "cpu"
        if kwargs.get("pin_memory"):
            del kwargs["pin_memory"]
        return function(*args, **kwargs)

    def _on_cpu(self, value: Any) -> Any:
        named = isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))
        if named or (isinstance(value, torch.device) and value.type == "cuda"):
            self.moved = True
            return torch.device("cpu")
        return value


def cuda_is_missing() -> bool:
    """Whether the user's code cannot use a GPU here."""
    return not torch.cuda.is_available()
