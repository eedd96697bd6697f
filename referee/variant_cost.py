"""A model of what a variant costs, by which a race leaves out those that cannot be the fastest.

These kernels wait for memory. So the model takes the bytes that the launches move, and the share of
the card that works on them at once. That share comes from the number of programs and warps, and from
the registers and shared memory that limit how many fit on the card. Spilled registers add bytes.
Each launch adds its start, which decides among kernels on few elements. The unit is the time in
which the card moves the inputs and outputs once. The model only compares variants of one kernel,
and a race keeps all below `LIMIT` times the least. A wrong guess costs speed at most, never a right
answer. Torch-free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

from referee.compiling.binaries import Binary
from referee.gpu.jobs import CompiledCandidate
from referee.ops.spec import TensorSpec
from referee.plans.dtypes import ITEMSIZE
from referee.plans.plan import Launch, traffic
from referee.target import DeviceProperties, Target

LIMIT = 2.0
"""A variant that costs more than this many times the least is not raced."""
ENOUGH = 0.25
"""The share of a card's threads that keeps its memory busy."""
START = 2e-6
"""Seconds that the start and the end of a launch take, while its memory waits."""
WARP, MOST_PROGRAMS = 32, 32


@dataclass(frozen=True)
class Cost:
    """The cost of a variant, with two facts that explain it.

    `busy` is the share of the card's threads that run at once, `spills` the bytes that one spills.
    """

    times: float
    busy: float
    spills: int

    @property
    def words(self) -> str:
        """The facts for a reader."""
        spilled = f", {self.spills} bytes spilled a thread" if self.spills else ""
        return f"{self.busy:.0%} of the card's threads at work{spilled}"


def cost(prepared: CompiledCandidate, target: Target) -> Cost:
    """The cost of a candidate that was compiled at one case."""
    (job,) = prepared.jobs
    card = target.properties
    least = max(1, sum(map(_bytes, (*job.cell.inputs, *job.cell.outputs))))
    slow, spilled, busy, spills, launches = 0.0, 0.0, 1.0, 0, 0
    for number, step in enumerate(job.plan.steps):
        if not isinstance(step, Launch):
            continue
        which = min(config for at, config in job.binaries if at == number)
        binary, programs = job.binaries[number, which], prod(step.configs[which].grid)
        held = max(1, _fitting(binary, card)) * card.multi_processor_count
        threads = min(programs, held) * binary.num_warps * WARP
        share = threads / (card.max_threads_per_multi_processor * card.multi_processor_count)
        waves = programs / held
        slow += max(1.0, ENOUGH / share) * (ceil(waves) / waves if waves > 1 else 1.0)
        spilled += 2 * (binary.spills or 0) * programs * binary.num_warps * WARP / least
        busy, spills, launches = min(busy, share), max(spills, binary.spills or 0), launches + 1
    moved = traffic(job.plan) * slow / max(1, launches)
    started = launches * START * _bandwidth(card) / least
    return Cost(moved + spilled + started, min(1.0, busy), spills)


def too_costly(costs: Sequence[Cost | None]) -> dict[int, str]:
    """The numbers of variants to leave out, each with the reason; never the first one."""
    known = [one.times for one in costs if one is not None]
    least = min(known, default=1.0)
    return {
        number: f"not raced: by the model it costs {one.times / least:.1f} times the least"
        f" ({one.words})"
        for number, one in enumerate(costs)
        if number and one is not None and one.times > LIMIT * least
    }


def _fitting(binary: Binary, card: DeviceProperties) -> int:
    limits = [
        card.max_threads_per_multi_processor // (binary.num_warps * WARP),
        MOST_PROGRAMS,
        card.shared_memory_per_multiprocessor // (binary.shared + 1024),
    ]
    if binary.registers:
        limits.append(card.regs_per_multiprocessor // (binary.registers * binary.num_warps * WARP))
    return min(limits)


def _bandwidth(card: DeviceProperties) -> float:
    """Bytes a second between the card and its memory, which moves twice a clock."""
    return 2 * 1000 * card.memory_clock_rate * card.memory_bus_width / 8


def _bytes(spec: TensorSpec) -> int:
    return prod(spec.shape) * ITEMSIZE[spec.dtype]
