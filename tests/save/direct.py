"""Saved files whose direct launch takes CPU tensors, shared by the tests of direct calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.saved_block import load
from bench.saved_calls import taking_cpu_tensors
from tests.save.conftest import save_quickly


def save_for_cpu(names: Sequence[str], folder: Path) -> None:
    """Save gold kernels, edited so that CPU tensors are launched."""
    for name in names:
        file = save_quickly(name, folder).files[0]
        file.write_text(taking_cpu_tensors(file.read_text(encoding="utf-8")), encoding="utf-8")


class File:
    """A saved file whose direct launch takes CPU tensors; `launches` counts its calls of `_run`.

    The reference stands for the kernel, which only a GPU or the interpreter runs.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.module: Any = load(path)
        self.function: Callable[..., Tensor] = getattr(self.module, name)
        self.launches = 0
        vars(self.module)["_run"] = self._run

    def _run(self, *given: Tensor) -> Tensor:
        assert all(one.dim() <= 2 for one in given)
        self.launches += 1
        found: Tensor = self.module.reference(*given)
        return found

    def direct(self, *given: object, **named: object) -> Tensor:
        """The answer of a call that must be one direct launch."""
        before = self.launches
        found = self.function(*given, **named)
        assert self.launches == before + 1, "the operator was called"
        return found

    def by_operator(self, *given: object, **named: object) -> Tensor:
        """The answer of a call that must be none."""
        before = self.launches
        found = self.function(*given, **named)
        assert self.launches == before, "the operator was not called"
        return found


def outcome(call: Callable[..., Tensor], *given: object, **named: object) -> object:
    """The answer, or the type and the words of the error."""
    try:
        return call(*given, **named)
    except Exception as error:
        return type(error), str(error)


def assert_same(found: object, wanted: object) -> None:
    """Two answers that are close, or the same error."""
    if isinstance(wanted, Tensor):
        torch.testing.assert_close(found, wanted)
    else:
        assert found == wanted
