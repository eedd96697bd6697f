"""A Triton kernel of the referee's own that is launched thousands of times a verdict.

Triton looks at every argument of every launch anew, which takes the host three times as long as the launch. Here a kernel is compiled,
and first launched, in Triton's usual way for every kind of arguments, and launched again as its tutorials do. Tells arguments apart at
least as finely as Triton does: tensors by dtype and whether their address is a multiple of 16, integers by width, being 1, and being a
multiple of 16. Limits: one device; tensors, integers and None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

ALIGNMENT = 16

Argument = Tensor | int | None


class OwnKernel:
    """`function` is a Triton function whose last parameters are its constants."""

    def __init__(self, function: Any, *, warps: int) -> None:
        self._function, self._warps = function, warps
        self._compiled: dict[tuple[object, ...], Any] = {}

    def launch(self, grid: tuple[int, ...], arguments: tuple[Argument, ...], constants: Mapping[str, int]) -> None:
        """Queue a launch on the current stream; `constants` in the order of the function's parameters."""
        kinds = (*map(_kind, arguments), *constants.values())
        if compiled := self._compiled.get(kinds):
            compiled[(*grid, 1, 1)[:3]](*arguments, *constants.values())
        else:
            self._compiled[kinds] = self._function[grid](*arguments, **constants, num_warps=self._warps)


def _kind(argument: Argument) -> object:
    if isinstance(argument, Tensor):
        return argument.dtype, argument.data_ptr() % ALIGNMENT == 0
    if argument is None:
        return None
    return argument == 1, argument % ALIGNMENT == 0, -(2**31) <= argument < 2**31, argument < 2**63
