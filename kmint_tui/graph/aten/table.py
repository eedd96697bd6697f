"""The registry of ATen operations by name, and how entries read their arguments. Imports no torch.

An entry takes a node's arguments, with values in place of tensors and `Size` in place of symbolic
integers. It returns a value or several. Each family of operations is a module of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kmint_tui.graph import values as v
from kmint_tui.graph.program import OutOfScope
from kmint_tui.graph.sizes import Size
from kmint_tui.graph.values import Value

Entry = Callable[..., Any]
F = TypeVar("F", bound=Entry)
TABLE: dict[str, Entry] = {}


def entry(*names: str) -> Callable[[F], F]:
    """Registers an operation under its ATen names, without the overload."""

    def add(function: F) -> F:
        for name in names:
            assert name not in TABLE, f"{name} is registered twice"
            TABLE[name] = function
        return function

    return add


def value_of(given: Any) -> Value:
    """A tensor, or a number as a tensor without dimensions. Raises OutOfScope."""
    if isinstance(given, Value):
        return given
    if isinstance(given, Size):
        return v.scalar(given, "i")
    if isinstance(given, (bool, int, float)):
        return v.constant(given)
    raise OutOfScope(f"an argument of type {type(given).__name__}")


def size(given: Any) -> Size:
    """A size, or a number as one. Raises OutOfScope for a size that is computed from values."""
    if isinstance(given, Size):
        return given
    if isinstance(given, int):
        return Size.of(given)
    raise OutOfScope("a size that values decide")


def places_of(given: int | Sequence[int] | None) -> Sequence[int] | None:
    """The dimensions of a reduction, given as one, several or none; None means all of them."""
    return None if given is None else [given] if isinstance(given, int) else list(given) or None
