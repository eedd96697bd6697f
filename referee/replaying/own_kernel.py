"""A Triton kernel of the referee's own that is launched thousands of times a verdict.

Triton looks at every argument of every launch anew, which takes the host three times as long as the launch. Here a kernel is compiled,
and first launched, in Triton's usual way for every kind of arguments, and launched again as its tutorials do. Tells arguments apart at
least as finely as Triton does: tensors by dtype and whether their address is a multiple of 16, integers by width, being 1, and being a
multiple of 16. Limits: one device; tensors, pointers, integers and None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, dtype

ALIGNMENT = 16
LOST, NO_MEMORY = "Triton Error [CUDA]", "out of memory"


@dataclass(frozen=True, slots=True)
class Pointer:
    """Device memory as numbers of some dtype. Takes less time to make than a view; somebody else must keep the memory alive."""

    address: int
    dtype: dtype

    def data_ptr(self) -> int:
        """What Triton asks of a tensor, besides its dtype."""
        return self.address


Argument = Tensor | Pointer | int | None


class OwnKernel:
    """`function` is a Triton function whose last parameters are its constants."""

    def __init__(self, function: Any, *, warps: int) -> None:
        self._function, self._warps = function, warps
        self._compiled: dict[tuple[object, ...], Any] = {}

    def launch(self, grid: tuple[int, ...], arguments: tuple[Argument, ...], constants: Mapping[str, int]) -> None:
        """Queue a launch on the current stream; `constants` in the order of the function's parameters.

        Raises torch.AcceleratorError where an earlier kernel, whoever's, has ended the context.
        """
        try:
            self._launch(grid, arguments, constants)
        except RuntimeError as error:
            # Triton says in words of its own what torch has a class for: that a kernel before this one has ended the context.
            if str(error).startswith(LOST) and NO_MEMORY not in str(error):
                raise torch.AcceleratorError(str(error)) from error
            raise

    def _launch(self, grid: tuple[int, ...], arguments: tuple[Argument, ...], constants: Mapping[str, int]) -> None:
        kinds = (*map(_kind, arguments), *constants.values())
        if compiled := self._compiled.get(kinds):
            compiled[(*grid, 1, 1)[:3]](*map(_passed, arguments), *constants.values())
        else:
            self._compiled[kinds] = self._function[grid](*arguments, **constants, num_warps=self._warps)


def _passed(argument: Argument) -> Tensor | int | None:
    """What a compiled kernel is given: it takes an address for a pointer, and asks the driver about those of tensors."""
    return argument.address if isinstance(argument, Pointer) else argument


def _kind(argument: Argument) -> object:
    if isinstance(argument, Pointer | Tensor):
        return argument.dtype, argument.data_ptr() % ALIGNMENT == 0
    if argument is None:
        return None
    return argument == 1, argument % ALIGNMENT == 0, -(2**31) <= argument < 2**31, argument < 2**63
