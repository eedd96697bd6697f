"""One candidate, as far as the stages have come.

Each stage of a verdict takes a candidate and returns it with more facts: `screen` adds its kernels,
`trace` its plans, and `compile` its binaries. What the stages tell the reader goes into the report,
which all of them share. Torch-free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from referee.compiling.binaries import Binaries
from referee.ops.spec import Cell
from referee.plans.plan import LaunchPlan
from referee.problem import Problem
from referee.reading.kernels import KernelModule
from referee.report import Domain, Rejected, Report
from referee.sandbox.zygote import Workers
from referee.target import Target
from referee.tracing.trace import Outcomes
from referee.verdict import Rejection

T = TypeVar("T")
Level = Literal["screen", "compile", "correct", "full"]
Traced = Sequence[tuple[Cell, LaunchPlan]]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A text that passed the screen, and what the judge has read of it since."""

    report: Report
    workers: Workers
    """Where it is traced and compiled."""
    cache: Path | None
    """The folder of compiled kernels, or None."""
    source: str
    problem: Problem
    module: KernelModule
    strict: bool
    batch_invariant: bool = False
    """Whether batch invariance is required."""
    domain: Domain | None = None
    """What the launcher refuses; None if it may refuse nothing."""
    outcomes: Outcomes = field(default_factory=dict)
    """Outcomes of decisions on sizes, in every cell that was traced for the target."""
    target: Target = Target()
    seed: int = 0
    cells: Sequence[Cell] = ()
    """The required cases, also those that the launcher refuses."""
    traced: Traced = ()
    """The required cases with their plans."""
    further: Traced = ()
    """Cases that are compiled and not judged."""
    compiled: Sequence[tuple[LaunchPlan, Binaries]] = ()
    """The plans that were compiled, with the kernels of their launches."""

    def atomic(self, traced: Traced) -> bool:
        """Whether a kernel that these plans launch uses atomic operations."""
        return uses_atomics(self.module, traced)


def uses_atomics(module: KernelModule, traced: Traced) -> bool:
    """Whether a kernel that these plans launch uses atomic operations."""
    launched = {kernel for _, plan in traced for kernel in plan.kernels}
    return any(signature.atomic for signature in module.signatures if signature.name in launched)


def raise_rejected(rejection: Rejection | None) -> None:
    """Raise Rejected if there is a rejection."""
    if rejection is not None:
        raise Rejected(rejection)


def unless_rejected(answer: T | Rejection) -> T:
    """The answer. Raises Rejected if it is a rejection."""
    if isinstance(answer, Rejection):
        raise Rejected(answer)
    return answer
