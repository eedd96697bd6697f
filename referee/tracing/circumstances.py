"""The circumstances in which a trace calls `run`, and the answers of torch that belong to them.

torch answers about the running call: gradients, autocast, compilation, streams and the device. The
first call of `run` gets the usual answers, and the second one every other answer, with inputs that
require gradients. Both must come to the same plan. Runs in the trace worker only.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

Answer = TypeVar("Answer")

Questions = frozenset[str]
"""Names of questions that get another answer than the usual one."""

USUAL: Questions = frozenset()
OTHERWISE: Questions = frozenset({"everything"})
"""Every question gets another answer."""

DEFAULT_DTYPE = "the default dtype"
DEVICE = "torch.cuda.current_device"
_STREAM = "torch.cuda.current_stream"
_GRADIENTS = "torch.is_grad_enabled"

MANY = "calls in training, under autocast, in torch.compile or on another GPU"
_DEPENDS = "launches depend on shapes, dtypes and the device only"
_NAMES = {
    DEFAULT_DTYPE: "another default dtype than float32",
    DEVICE: "inputs on another GPU than the first",
}

_NOT_FOR_TORCH = frozenset({"torch.jit.is_scripting", "torch.jit.is_tracing"})
"""Questions that torch also asks itself. Another answer would change the work of torch."""


class TorchAnswers:
    """The answers for the call that is running. `asked` has the questions of the file so far."""

    def __init__(self) -> None:
        self.otherwise = USUAL
        self.asked: dict[str, None] = {}
        self.handle = 0

    def begin(self, otherwise: Questions) -> None:
        """Answer these questions otherwise from now on."""
        self.otherwise = otherwise
        # Addresses and the handles of streams differ from call to call.
        self.handle = secrets.randbits(47) | 1 << 40

    def end(self) -> None:
        """Give the usual answers again."""
        self.otherwise = USUAL

    def is_other(self, question: str) -> bool:
        """Return True when this question gets another answer."""
        return question in self.otherwise or self.otherwise == OTHERWISE

    def answer(self, question: str, usual: Answer, other: Answer, asking: str) -> Answer:
        """The answer to the module `asking`. Questions from torch itself are not noted."""
        if not is_torch(asking):
            self.asked[question] = None
        elif question in _NOT_FOR_TORCH:
            return usual
        return other if self.is_other(question) else usual

    @property
    def gradients(self) -> bool:
        """Whether the call is to run with gradients."""
        return self.is_other(_GRADIENTS)

    @property
    def device(self) -> torch.device:
        """The GPU that the inputs lie on, which is also the current one."""
        return torch.device("cuda", 1 if self.is_other(DEVICE) else 0)

    def stream(self) -> int:
        """The handle of the current stream."""
        return self.answer(_STREAM, 0, self.handle, caller(2))

    def answers(self) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
        """Modules of torch, the names of their functions, and the functions that answer instead."""
        for module, prefix, name in (
            (torch.compiler, "torch.compiler", "is_compiling"),
            (torch.jit, "torch.jit", "is_scripting"),
            (torch.jit, "torch.jit", "is_tracing"),
        ):
            yield module, name, self._yes_or_no(f"{prefix}.{name}", getattr(module, name))
        yield torch, "is_grad_enabled", self._of_gradients(torch.is_grad_enabled)
        for name, other in (("is_autocast_enabled", True), ("get_autocast_dtype", torch.bfloat16)):
            yield torch, name, self._of_gpus(f"torch.{name}", getattr(torch, name), other)

    def _yes_or_no(self, question: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.answer(
            question, original(*args, **kwargs), True, caller(1)
        )

    def _of_gradients(self, original: Callable[[], bool]) -> Callable[[], bool]:
        """Return torch's own answer, because contexts of torch change it within a call."""

        def answered() -> bool:
            self.answer(_GRADIENTS, False, True, caller(1))
            return original()

        return answered

    def _of_gpus(
        self, question: str, original: Callable[..., Any], other: object
    ) -> Callable[..., Any]:
        """Give another answer for the device type "cuda", which is the default."""

        def answered(*args: Any, **kwargs: Any) -> Any:
            usual = original(*args, **kwargs)
            device = torch.device(next(iter((*args, *kwargs.values())), "cuda")).type
            given = self.answer(question, usual, other, caller(1))
            return given if device == "cuda" else usual

        return answered


def is_torch(module: str) -> bool:
    """Return True for the name of one of torch's modules."""
    return module.partition(".")[0] == "torch"


def caller(depth: int) -> str:
    """The name of the module of the function that asks (depth 0), of its caller (1), and so on."""
    return str(sys._getframe(depth + 1).f_globals.get("__name__", ""))


@dataclass(frozen=True)
class Circumstances:
    """Questions that torch answers otherwise in a call, and whether inputs are parameters."""

    otherwise: Questions = USUAL
    trained: bool = False

    def make(self, tensor: torch.Tensor) -> torch.Tensor:
        """The input for a call in these circumstances. It shares the memory of `tensor`."""
        trained = self.trained and tensor.is_floating_point()
        return torch.nn.Parameter(tensor, True) if trained else tensor

    def words(self) -> str:
        """The difference from a usual call, in words for the user."""
        if self.otherwise == OTHERWISE:
            return MANY
        if self.trained:
            return "inputs that require gradients"
        question = next(iter(self.otherwise), "")
        return _NAMES.get(question, f"another answer of {question}") if question else "no change"

    def differs(self) -> str:
        """The reason to reject a file whose plan is another in these circumstances."""
        other = "the second call of `run` does something else than the first"
        return f"{other} ({self.words()}): {_DEPENDS}, and nothing is kept between calls"


FIRST = Circumstances()
IN_TRAINING = Circumstances(OTHERWISE, True)


def alone(asked: Sequence[str]) -> Iterator[Circumstances]:
    """Yield the parts of IN_TRAINING one by one. `asked` has the file's questions to torch."""
    yield Circumstances(trained=True)
    for question in (DEFAULT_DTYPE, DEVICE, *asked):
        yield Circumstances(frozenset({question}))


def state(tensors: Sequence[torch.Tensor]) -> list[tuple[object, ...]]:
    """The types, shapes and strides of inputs, which a call must leave as they are."""
    with torch._C.DisableTorchFunction():
        return [
            (type(one), one.requires_grad, tuple(one.shape), one.stride(), one.storage_offset())
            for one in tensors
        ]
