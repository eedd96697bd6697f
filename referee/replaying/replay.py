"""Executes a launch plan on the device in kmint's buffers, and finds changes outside its outputs.

A region is memory with a fill pattern and guard bands (`arena`). A runner binds a plan's steps to a
region and queues them. Compiled kernels are launched through the CUDA driver; torch fills and
copies. No candidate Python runs.

Runs in the replay worker. On the device "cpu", plans without launches work, so tests need no GPU.
"""

from __future__ import annotations

import copy
import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from referee.compiling.binaries import Binary
from referee.plans.arena import (
    ALIGNMENT,
    NAN,
    PIECE_BYTES,
    Damage,
    FillPattern,
    Layout,
    damage,
    expected_input_bytes,
    layout,
    prepare,
    window,
)
from referee.plans.plan import Copy, Fill, Launch, LaunchConfig, LaunchPlan, Value, View
from referee.replaying.driver import (
    CudaError,
    Driver,
    Kernel,
    Packed,
    ParameterError,
    PreparedLaunch,
    pack,
)

SLACK_BYTES = 1 << 21
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Choice = Mapping[int, int]
Kernels = Mapping[tuple[int, int], tuple[Kernel, Binary]]


class PlanFault(RuntimeError):
    """The plan or its kernels failed. `sticky` means that the process must end."""

    def __init__(self, guard: str, reason: str, *, sticky: bool = False) -> None:
        super().__init__(reason)
        self.guard, self.reason, self.sticky = guard, reason, sticky


class Region:
    """Memory for one plan: buffers between guard bands, at a random place of a slightly larger
    slab.

    `places` defaults to the arena's layout (`reverse`: in the other order), at a multiple of
    `step`. `slab` is existing memory of at least `slab_bytes`; by default a slab is allocated.
    Every byte of it is watched.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        device: str,
        *,
        reverse: bool = False,
        places: Layout | None = None,
        step: int = ALIGNMENT,
        slab: Tensor | None = None,
    ) -> None:
        self.plan, self._home, self._step = plan, places or layout(plan, reverse=reverse), step
        size = slab_bytes(self._home, step)
        self.bytes = torch.empty(size, dtype=torch.uint8, device=device) if slab is None else slab
        self.places = self._home.within(0, self.bytes.numel())
        self.inputs: Sequence[Tensor] = ()
        self.poison: FillPattern = NAN
        # All `moved` regions share it, because they have the same memory.
        self._typed: dict[torch.dtype, Tensor] = {}

    def fill(self, inputs: Sequence[Tensor], poison: FillPattern) -> None:
        """Moves to another address, fills everything with the pattern, and writes the inputs."""
        self.move()
        self.begin(inputs, poison)
        self.inputs = inputs

    def begin(
        self,
        inputs: Sequence[Tensor | None],
        poison: FillPattern,
        targets: Sequence[Tensor] | None = None,
    ) -> None:
        """As `fill`, at the present address. The caller writes the inputs that are None and watches
        all of them.

        See `arena.prepare`. `targets` are the tensors of the inputs, if the caller has them.
        """
        self.inputs, self.poison = (), poison
        prepare(
            self.bytes,
            self.places,
            self.plan,
            inputs,
            poison,
            targets or [self.tensor(view) for view in self.plan.inputs],
        )

    def move(self) -> None:
        """Moves to another address, and keeps the memory's content there."""
        misalignment = -self.bytes.data_ptr() % self._step
        slack = self.bytes.numel() - self._home.total - misalignment
        start = misalignment + self._step * secrets.randbelow(slack // self._step)
        self.places = self._home.within(start, self.bytes.numel())

    def moved(self) -> Region:
        """The same memory as another region, at another address."""
        other = copy.copy(self)
        other.move()
        return other

    def change_inputs(self, inputs: Sequence[Tensor]) -> None:
        """Writes other inputs in place of the last ones; all other memory stays as it is."""
        self.inputs = inputs
        for view, tensor in zip(self.plan.inputs, inputs, strict=True):
            self.tensor(view).copy_(tensor)

    def tensor(self, view: View) -> Tensor:
        """The tensor of a view of the plan."""
        return window(self._as(getattr(torch, view.dtype)), self.places, view)

    def words(self, low: int, high: int, size: int) -> Tensor:
        """Bytes `low` to `high` as integers of `size` bytes; both are multiples of `size`."""
        assert not (low | high) % size, (low, high, size)
        return self._as(INTEGERS[size])[low // size : high // size]

    def _as(self, dtype: torch.dtype) -> Tensor:
        """All bytes as numbers, made once, because a view costs the host a microsecond."""
        if dtype not in self._typed:
            self._typed[dtype] = self.bytes.view(dtype)
        return self._typed[dtype]

    def address(self, view: View) -> int:
        """The device address of a view of the plan."""
        return self.bytes.data_ptr() + self.places.slots[view.buffer].start + view.offset

    def damage(self) -> Damage | None:
        """The plan's first forbidden change, or None. Waits for the device."""
        return self.explain() if bool(torch.stack(self.touched()).any()) else None

    def forget(self, poison: FillPattern) -> None:
        """Refills all memory except inputs with the pattern, in place."""
        for slot in self.places.slots:
            if slot.input is None:
                size = widest(slot.start, slot.end)
                pattern = (poison.pattern * size)[:size]
                self.words(slot.start, slot.end, size).fill_(
                    int.from_bytes(pattern, "little", signed=size > 1)
                )

    def touched(self) -> list[Tensor]:
        """Booleans on the device, all false only if `damage` cannot find anything. No wait."""
        pairs = zip(self.plan.inputs, self.inputs, strict=True)
        return [*bands([self]), *(self._changed(view, tensor) for view, tensor in pairs)]

    def _changed(self, view: View, tensor: Tensor) -> Tensor:
        slot = self.places.slots[view.buffer]
        if not _has_gaps(view, slot.nbytes):
            return differ(self.tensor(view), tensor)
        return differ(
            self.bytes[slot.start : slot.end], expected_input_bytes(slot, view, tensor, self.poison)
        )

    def has_gaps(self) -> bool:
        """Whether an input leaves bytes of its buffer that `bands` does not cover."""
        return any(
            _has_gaps(view, self.places.slots[view.buffer].nbytes) for view in self.plan.inputs
        )

    def explain(self) -> Damage | None:
        """As `damage`, with a look at every byte."""
        return damage(self.bytes, self.places, self.plan, self.inputs, self.poison)


def slab_bytes(places: Layout, step: int = ALIGNMENT) -> int:
    """Bytes of memory within which a region of this layout moves."""
    return places.total + max(SLACK_BYTES, 4 * step)


def bands(regions: Iterable[Region]) -> list[Tensor]:
    """Booleans on the device: true where bytes outside every buffer may have changed.

    They are cheap, and all false only if no such byte changed.
    """
    batches: list[tuple[int, int, list[Tensor]]] = []
    room = 0
    for region in regions:
        byte, guards = region.poison.pattern[0], region.places.guards
        size = widest(*chain.from_iterable(guards))
        for low, high in guards:
            # Copying short bands together takes less time than queueing one comparison each.
            if high - low > room or batches[-1][:2] != (byte, size):
                batches.append((byte, size, []))
                room = PIECE_BYTES
            batches[-1][2].append(region.words(low, high, size))
            room -= high - low
    return [_other_than(byte, size, some) for byte, size, some in batches]


def _has_gaps(view: View, nbytes: int) -> bool:
    dtype: torch.dtype = getattr(torch, view.dtype)
    return math.prod(view.shape) * dtype.itemsize != nbytes


def _other_than(byte: int, size: int, bands: Sequence[Tensor]) -> Tensor:
    """A boolean on the device: whether a byte of `bands` (integers of `size` bytes) differs."""
    numbers = torch.cat(list(bands)) if len(bands) > 1 else bands[0]
    return (numbers != int.from_bytes(bytes([byte] * size), "little", signed=size > 1)).any()


def differ(left: Tensor, right: Tensor) -> Tensor:
    """A boolean on the device: whether two tensors of one shape and dtype differ in any bit."""
    size = left.element_size()
    if left.is_contiguous() and right.is_contiguous():
        # Fewer booleans are faster: a comparison as int16 writes a quarter of the bytes that it
        # reads.
        size = widest(
            left.numel() * size,
            int(left.storage_offset()) * size,
            int(right.storage_offset()) * size,
        )
        left, right = left.flatten(), right.flatten()
    return (left.view(INTEGERS[size]) != right.view(INTEGERS[size])).any()


def widest(*offsets: int) -> int:
    """The size of the largest integer that divides all these byte counts."""
    bits = max(INTEGERS)
    for offset in offsets:
        bits |= offset
    return bits & -bits


class Runner:
    """One plan with its loaded kernels. `bind` fixes the region and the configurations."""

    def __init__(self, plan: LaunchPlan, kernels: Kernels, driver: Driver | None) -> None:
        self.plan, self._kernels, self._driver = plan, kernels, driver

    def bind(self, region: Region, choice: Choice) -> Bound:
        """The plan's steps, ready for repeated queueing. Raises PlanFault if the driver refuses."""
        steps: list[Callable[[int], object]] = []
        for number, step in enumerate(self.plan.steps):
            if isinstance(step, Launch):
                steps.append(self._prepared(region, step, number, choice.get(number)).launch)
            elif isinstance(step, Fill):
                steps.append(_fill(region.tensor(step.target), step))
            else:
                steps.append(_copy(region, step))
        return Bound(tuple(steps))

    def configurations(self, number: int) -> list[int]:
        """The compiled configurations of a launch, by number."""
        return sorted(config for step, config in self._kernels if step == number)

    def _prepared(
        self, region: Region, step: Launch, number: int, which: int | None
    ) -> PreparedLaunch:
        if self._driver is None:
            raise PlanFault("kernel_error", "launches need a GPU")
        known = self.configurations(number)
        if not known:
            raise PlanFault(
                "kernel_error", f"no configuration of kernel {step.kernel} was compiled"
            )
        # A test case may have fewer configurations, because its shape makes some equal. The check
        # and the run use the same one.
        chosen = which if which is not None and which in known else known[0]
        config, (kernel, binary) = step.configs[chosen], self._kernels[number, chosen]
        try:
            values = zip(
                binary.parameters, (_at(config, path) for path in binary.paths), strict=True
            )
            # Two hidden pointers end every Triton kernel's parameters: global and profiling
            # scratch, unused here.
            packed = [
                *(_packed(region, kind, value) for kind, value in values),
                pack("*", None),
                pack("*", None),
            ]
            return self._driver.prepare(kernel, config.grid, packed)
        except ParameterError as error:
            raise PlanFault("kernel_error", f"kernel {step.kernel}: {error}") from error
        except CudaError as error:
            raise PlanFault(
                "kernel_error", f"kernel {step.kernel}: {error}", sticky=error.sticky
            ) from error


@dataclass(frozen=True)
class Bound:
    """The steps of a plan on one region. `run` queues them on a stream and does not wait."""

    steps: tuple[Callable[[int], object], ...]

    def run(self, stream: int) -> None:
        """Queues every step. Raises CudaError."""
        for step in self.steps:
            step(stream)


def _at(config: LaunchConfig, path: tuple[int, ...]) -> Value:
    """The argument, or the item within a tuple, at the path. Raises ParameterError."""
    try:
        value = config.arguments[path[0]].value
        for position in path[1:]:
            if not isinstance(value, tuple):
                raise ParameterError("a tuple was compiled for, and the plan passes something else")
            value = value[position]
    except IndexError:
        raise ParameterError("more arguments were compiled for than the plan passes") from None
    return value


def _packed(region: Region, kind: str, value: Value) -> Packed:
    if isinstance(value, View):
        return pack(kind, region.address(value))
    if value is None or isinstance(value, int | float):
        return pack(kind, value)
    raise ParameterError(f"{value!r} cannot be passed to a kernel")


def _fill(target: Tensor, step: Fill) -> Callable[[int], object]:
    return lambda _: target.fill_(step.value)


def _copy(region: Region, step: Copy) -> Callable[[int], object]:
    target, source = region.tensor(step.target), region.tensor(step.source)
    return lambda _: target.copy_(source)
