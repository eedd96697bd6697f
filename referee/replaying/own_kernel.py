"""A Triton kernel of the referee's own that is launched thousands of times a verdict.

Triton looks at every argument of every launch anew, which takes the host several times as long as the launch. Here a kernel is
compiled, and first launched, in Triton's usual way for every kind of arguments; then the driver is asked to launch what Triton has
loaded, with other numbers in the same packed parameters. Tells arguments apart at least as finely as Triton does: tensors by dtype and
whether their address is a multiple of 16, integers by width, being 1, and being a multiple of 16. Limits: one device and one thread;
tensors, pointers, integers and None.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, dtype

from referee.replaying.driver import LIBRARY, CudaError, Driver, pack
from referee.triton_private import CONSTANT, HIDDEN_POINTERS, loaded_function, read_compiled

ALIGNMENT = 16
WARP_SIZE = 32
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
        self._compiled: dict[tuple[object, ...], Repeated] = {}

    def launch(self, grid: tuple[int, ...], arguments: tuple[Argument, ...], constants: Mapping[str, int]) -> None:
        """Queue a launch on the current stream; `constants` in the order of the function's parameters.

        Raises torch.AcceleratorError where an earlier kernel, whoever's, has ended the context.
        """
        kinds = (*map(_kind, arguments), *constants.values())
        if repeated := self._compiled.get(kinds):
            repeated.launch(grid, arguments)
            return
        try:
            compiled = self._function[grid](*arguments, **constants, num_warps=self._warps)
            # Triton's interpreter compiles nothing.
            if compiled is not None:
                self._compiled[kinds] = Repeated(compiled, len(arguments))
        except RuntimeError as error:
            # Triton says in words of its own what torch has a class for: that a kernel before this one has ended the context.
            if str(error).startswith(LOST) and NO_MEMORY not in str(error):
                raise torch.AcceleratorError(str(error)) from error
            raise


class Repeated:
    """The launch of a kernel that Triton has compiled and loaded, again and again with other arguments of the same kinds."""

    def __init__(self, compiled: Any, arguments: int) -> None:
        """`arguments` is how many there are, without constants."""
        facts = read_compiled(compiled)
        assert not facts.needs, facts.needs
        kinds = [kind for _, kind in facts.signature[:arguments]]
        self._places = [place for place, kind in enumerate(kinds) if kind != CONSTANT]
        self._numbers = [pack(kinds[place], 0) for place in self._places]
        self._packed = [*self._numbers, *(pack("*", None) for _ in range(HIDDEN_POINTERS))]
        self._parameters = (ctypes.c_void_p * len(self._packed))(*map(ctypes.addressof, self._packed))
        self._function, self._shared = loaded_function(compiled), facts.shared
        self._block = (WARP_SIZE * facts.num_warps, 1, 1)
        self._launch = launcher()

    def launch(self, grid: tuple[int, ...], arguments: tuple[Argument, ...]) -> None:
        """Queue it on the current stream. Raises torch.AcceleratorError where the context is lost, RuntimeError for anything else."""
        for place, number in zip(self._places, self._numbers, strict=True):
            argument = arguments[place]
            number.value = argument if isinstance(argument, int) else argument.data_ptr() if argument is not None else 0
        stream = torch.cuda.current_stream().cuda_stream
        code = self._launch(self._function, *(*grid, 1, 1)[:3], *self._block, self._shared, stream, self._parameters, None)
        if code:
            error = CudaError("cuLaunchKernel", code, Driver().error_name(code))
            raise torch.AcceleratorError(str(error)) if error.sticky else RuntimeError(str(error))


def launcher() -> Any:
    """The driver's function, told what it takes: ctypes then converts plain numbers."""
    launch = ctypes.CDLL(LIBRARY).cuLaunchKernel
    launch.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
    return launch


def _kind(argument: Argument) -> object:
    if isinstance(argument, Pointer | Tensor):
        return argument.dtype, argument.data_ptr() % ALIGNMENT == 0
    if argument is None:
        return None
    return argument == 1, argument % ALIGNMENT == 0, -(2**31) <= argument < 2**31, argument < 2**63
