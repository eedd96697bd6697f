"""Observes one evaluation of the user's code: its torch operations and random draws.

Limits: only torch's operations are visible. Random numbers of Python or numpy show as different
answers to the same inputs.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from referee.ops.torch_compat import Mode

Signature = tuple[Any, ...]


@dataclass(frozen=True)
class Place:
    """A torch operation and its line in the user's file; `line` is 0 for calls from other files."""

    operation: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line} (`{self.text}`)" if self.line else f"aten.{self.operation}"


@dataclass
class Observed:
    """The record of one evaluation.

    `calls` distinguishes operations by name, shapes and whole numbers, not by values.
    """

    calls: list[Signature] = field(default_factory=list)
    random: Place | None = None
    dynamic: Place | None = None
    """The first operation whose result shape depends on values."""


def observe(
    function: Callable[..., Any], arguments: Sequence[Any], file: Path
) -> tuple[Any, Observed]:
    """The result of `function`, and the record of its evaluation. Raises its exceptions."""
    seen = Observed()
    with _Observing(seen, str(file)):
        found = function(*arguments)
    return found, seen


class _Observing(Mode):
    def __init__(self, seen: Observed, file: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen, self._file = seen, file

    def operation(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        seen = self._seen
        seen.calls.append(_signature(function, args, kwargs))
        if seen.random is None and torch.Tag.nondeterministic_seeded in function.tags:
            seen.random = self._place(function)
        if (
            seen.dynamic is None
            and torch.Tag.dynamic_output_shape in function.tags
            and _is_dynamic(function, args)
        ):
            seen.dynamic = self._place(function)
        return function(*args, **kwargs)

    def _place(self, function: Any) -> Place:
        name = function.overloadpacket.__name__
        frames = [frame for frame in traceback.extract_stack() if frame.filename == self._file]
        return (
            Place(name, frames[-1].lineno or 0, frames[-1].line or "")
            if frames
            else Place(name, 0, "")
        )


def _is_dynamic(function: Any, args: Sequence[Any]) -> bool:
    """Indexing has a value-dependent shape only for a mask."""
    if function.overloadpacket is not torch.ops.aten.index:
        return True
    return any(
        isinstance(one, Tensor) and one.dtype in (torch.bool, torch.uint8) for one in args[1]
    )


def _signature(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Signature:
    """The operation with its tensors' shapes and dtypes, and its arguments except free numbers."""
    parameters = {one.name: one for one in function._schema.arguments}
    named = list(zip(parameters, args, strict=False)) + list(kwargs.items())
    return (
        str(function),
        *(
            (name, _described(value, str(parameters[name].type)))
            for name, value in named
            if name in parameters
        ),
    )


def _described(value: Any, kind: str) -> Any:
    if isinstance(value, Tensor):
        return tuple(value.shape), str(value.dtype)
    if isinstance(value, (list, tuple)):
        return tuple(_described(one, kind.removeprefix("List[").removesuffix("]")) for one in value)
    free = any(word in kind for word in ("number", "Scalar", "Tensor", "float"))
    return (
        "a number"
        if free and isinstance(value, (int, float)) and not isinstance(value, bool)
        else repr(value)
    )
