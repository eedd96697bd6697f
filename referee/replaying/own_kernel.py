"""A Triton kernel of the referee that a verdict launches thousands of times.

Triton inspects every argument at every launch, which takes the host several times as long as the
launch. Here Triton compiles and first launches a kernel for each kind of arguments. Later the
driver launches the loaded kernel with other numbers in the same packed parameters. Kinds are at
least as fine as Triton's. Tensors differ by dtype and by an address divisible by 16; integers by
width, by being 1, and by divisibility by 16. A series sets only the few numbers in which its
launches differ, because the host's queueing time bounds rounds of timed calls. Limits: one device
and one thread; tensors, pointers, integers and None.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, dtype

from referee.replaying.driver import LIBRARY, CudaError, Driver, Packed, pack
from referee.triton_compat.compiler import CONSTANT, HIDDEN_POINTERS, read_compiled
from referee.triton_compat.stand_in_driver import loaded_function, stream_reader

ALIGNMENT = 16
WARP_SIZE = 32
LOST, NO_MEMORY = "Triton Error [CUDA]", "out of memory"


@dataclass(frozen=True, slots=True)
class Pointer:
    """Device memory as numbers of a dtype. The caller must keep the memory alive."""

    address: int
    dtype: dtype

    def data_ptr(self) -> int:
        """The address, which Triton reads next to the dtype."""
        return self.address


Argument = Tensor | Pointer | int | None


class OwnKernel:
    """A kernel and its compiled forms. `function` is a Triton function whose last parameters are
    constants.

    `any_number` are the positions of integers in its `do_not_specialize`; only their width counts.
    """

    def __init__(self, function: Any, *, warps: int, any_number: tuple[int, ...] = ()) -> None:
        self._function, self._warps, self.any_number = function, warps, any_number
        self._compiled: dict[tuple[object, ...], Repeated] = {}

    def launch(
        self, grid: tuple[int, ...], arguments: tuple[Argument, ...], constants: Mapping[str, int]
    ) -> None:
        """Queues a launch on the current stream; `constants` follow the order of the function's
        parameters.

        Raises torch.AcceleratorError if an earlier kernel has ended the context.
        """
        kinds = self._kinds(arguments, constants)
        if repeated := self._compiled.get(kinds):
            repeated.change(grid, arguments)
            repeated.queue()
            return
        try:
            compiled = self._function[grid](*arguments, **constants, num_warps=self._warps)
            # Triton's interpreter compiles nothing.
            if compiled is not None:
                self._compiled[kinds] = Repeated(compiled, len(arguments))
        except RuntimeError as error:
            # Triton raises RuntimeError where torch has an error class: an earlier kernel has ended
            # the context.
            if str(error).startswith(LOST) and NO_MEMORY not in str(error):
                raise torch.AcceleratorError(str(error)) from error
            raise

    def compiled(
        self, arguments: tuple[Argument, ...], constants: Mapping[str, int]
    ) -> Repeated | None:
        """The compiled launch for arguments of these kinds; None before their first launch."""
        return self._compiled.get(self._kinds(arguments, constants))

    def _kinds(
        self, arguments: tuple[Argument, ...], constants: Mapping[str, int]
    ) -> tuple[object, ...]:
        return (
            *(
                _kind(argument, place in self.any_number)
                for place, argument in enumerate(arguments)
            ),
            *constants.values(),
        )


class Series:
    """Launches of one kernel on one grid that differ in addresses or unspecialized integers."""

    def __init__(
        self,
        kernel: OwnKernel,
        grid: tuple[int, ...],
        arguments: tuple[Argument, ...],
        constants: Mapping[str, int],
        changing: tuple[int, ...],
    ) -> None:
        """`arguments` in `changing` positions are aligned pointers or numbers beyond 32 bits."""
        for place in changing:
            given = arguments[place]
            assert isinstance(given, Pointer) or (
                place in kernel.any_number and isinstance(given, int) and given >= 2**31
            ), place
        self._kernel, self._grid, self._arguments, self._constants = (
            kernel,
            grid,
            arguments,
            constants,
        )
        self._changing = changing
        self._numbers: list[Packed] = []
        self._repeated: Repeated | None = None

    def launch(self, *numbers: int) -> None:
        """Queues a launch on the current stream with these numbers in the changing positions.

        Raises as OwnKernel.launch.
        """
        if self._repeated is None:
            self._first(numbers)
            return
        for number, value in zip(self._numbers, numbers, strict=True):
            number.value = value
        self._repeated.queue()

    def _first(self, numbers: tuple[int, ...]) -> None:
        arguments = list(self._arguments)
        for place, number in zip(self._changing, numbers, strict=True):
            usual = arguments[place]
            arguments[place] = (
                Pointer(number, usual.dtype) if isinstance(usual, Pointer) else number
            )
        self._kernel.launch(self._grid, tuple(arguments), self._constants)
        if known := self._kernel.compiled(self._arguments, self._constants):
            self._repeated = known.another()
            self._repeated.change(self._grid, self._arguments)
            self._numbers = [self._repeated.numbers[place] for place in self._changing]


class Repeated:
    """Repeated launches of a compiled and loaded kernel with arguments of the same kinds.

    `numbers` are the driver's arguments by position; compiled-in arguments have none.
    """

    def __init__(self, compiled: Any, arguments: int) -> None:
        """`arguments` is the number of arguments without constants."""
        self._compiled, self._count = compiled, arguments
        facts = read_compiled(compiled)
        assert not facts.needs, facts.needs
        kinds = [kind for _, kind in facts.signature[:arguments]]
        self.numbers = {
            place: pack(kind, 0) for place, kind in enumerate(kinds) if kind != CONSTANT
        }
        packed = [*self.numbers.values(), *(pack("*", None) for _ in range(HIDDEN_POINTERS))]
        self._grid, self._stream = [ctypes.c_uint(1) for _ in range(3)], ctypes.c_void_p()
        shape = [
            *self._grid,
            *map(ctypes.c_uint, (WARP_SIZE * facts.num_warps, 1, 1, facts.shared)),
        ]
        parameters = (ctypes.c_void_p * len(packed))(*map(ctypes.addressof, packed))
        # ctypes takes C values in half the time that it needs to convert numbers.
        self._passed = (
            ctypes.c_void_p(loaded_function(compiled)),
            *shape,
            self._stream,
            parameters,
            None,
        )
        self._packed, self._launch, self._current_stream = packed, launcher(), stream_reader()

    def another(self) -> Repeated:
        """The same launch with separate arguments."""
        return Repeated(self._compiled, self._count)

    def change(self, grid: tuple[int, ...], arguments: tuple[Argument, ...]) -> None:
        """Sets the grid and the arguments."""
        for size, along in zip((*grid, 1, 1), self._grid, strict=False):
            along.value = size
        for place, number in self.numbers.items():
            argument = arguments[place]
            number.value = (
                argument
                if isinstance(argument, int)
                else argument.data_ptr()
                if argument is not None
                else 0
            )

    def queue(self) -> None:
        """Queues the launch on the current stream.

        Raises torch.AcceleratorError if the context is lost, RuntimeError for any other failure.
        """
        self._stream.value = self._current_stream()
        if code := self._launch(*self._passed):
            error = CudaError("cuLaunchKernel", code, Driver().error_name(code))
            raise torch.AcceleratorError(str(error)) if error.sticky else RuntimeError(str(error))


def launcher() -> Any:
    """The driver's launch function, which takes C values."""
    return ctypes.CDLL(LIBRARY).cuLaunchKernel


def _kind(argument: Argument, any_number: bool) -> object:
    if isinstance(argument, Pointer | Tensor):
        return argument.dtype, argument.data_ptr() % ALIGNMENT == 0
    if argument is None:
        return None
    return (
        not any_number and (argument == 1, argument % ALIGNMENT == 0),
        -(2**31) <= argument < 2**31,
        argument < 2**63,
    )
