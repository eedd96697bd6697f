"""Facts of a compiled kernel at one test case: bytes, registers, occupancy.

Nothing runs: the referee traces and compiles the kernel, and the limits of the card do the rest.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from kmint_tui.profiling.occupancy import Occupancy, occupancy
from referee.gpu.jobs import CompiledCandidate
from referee.ops.spec import Cell, TensorSpec
from referee.plans.dtypes import ITEMSIZE
from referee.plans.plan import Launch, traffic
from referee.target import Target


@dataclass(frozen=True, kw_only=True)
class LaunchFacts:
    """One launch as it was compiled. `registers` and `spills` (bytes) are those of a thread, None
    where the compiler reported none; `shared` is in bytes.

    `waves` is the number of programs over those that the whole card holds at once.
    """

    kernel: str
    programs: int
    num_warps: int
    registers: int | None
    spills: int | None
    shared: int
    occupancy: Occupancy
    waves: float


@dataclass(frozen=True, kw_only=True)
class Computed:
    """The computed half of a profile.

    `least_bytes` counts inputs and outputs once. `moved_bytes` counts each buffer of each step once
    and whole, however often a kernel reads it.
    """

    case: str
    target: str
    card: str
    least_bytes: int
    moved_bytes: int
    launches: tuple[LaunchFacts, ...]

    def to_json(self) -> dict[str, Any]:
        """The part `computed` of `kmint.profile/1`."""
        launches = [
            {**asdict(one), "occupancy": {**asdict(one.occupancy), "share": one.occupancy.share}}
            for one in self.launches
        ]
        return {**asdict(self), "launches": launches}


def computed(prepared: CompiledCandidate, target: Target) -> Computed:
    """The facts of a candidate that was compiled at one case."""
    (job,) = prepared.jobs
    card = target.properties
    launches = []
    for number, step in enumerate(job.plan.steps):
        if not isinstance(step, Launch):
            continue
        which = min(config for at, config in job.binaries if at == number)
        which = prepared.choice.get(number, which)
        binary, programs = job.binaries[number, which], prod(step.configs[which].grid)
        fits = occupancy(
            registers=binary.registers,
            shared=binary.shared,
            num_warps=binary.num_warps,
            arch=target.arch,
            card=card,
        )
        launches.append(
            LaunchFacts(
                kernel=binary.kernel,
                programs=programs,
                num_warps=binary.num_warps,
                registers=binary.registers,
                spills=binary.spills,
                shared=binary.shared,
                occupancy=fits,
                waves=programs / max(1, fits.blocks * card.multi_processor_count),
            )
        )
    least = sum(map(_bytes, (*job.cell.inputs, *job.cell.outputs)))
    return Computed(
        case=case_words(job.cell),
        target=target.name,
        card=card.name,
        least_bytes=least,
        moved_bytes=round(traffic(job.plan) * least),
        launches=tuple(launches),
    )


def case_words(cell: Cell) -> str:
    """The inputs of a test case: "x float16 [4096, 4096], w float16 [4096]"."""
    return ", ".join(f"{spec.name} {spec.dtype} {list(spec.shape)}" for spec in cell.inputs)


def _bytes(spec: TensorSpec) -> int:
    return prod(spec.shape) * ITEMSIZE[spec.dtype]
