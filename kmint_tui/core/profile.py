"""Profiles one kernel at its timed case: facts of its compiled form, and a measurement on a GPU."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from kmint_tui.core.kernel_choice import Kernel
from kmint_tui.core.measuring import cache, referee_failures
from kmint_tui.core.referee import no_gpu_reason
from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from kmint_tui.profiling.computed import Computed
    from kmint_tui.profiling.measured import Measured
    from referee.ops.spec import Cell
    from referee.problem import Problem
    from referee.sandbox.demand import Demand
    from referee.verdict import Rejection

SEED_BITS = 63


@dataclass(frozen=True)
class Profile:
    """The profile of a kernel, or the rejection that came before it. `measured` is None without a
    GPU, and with another target than the GPU that is here.
    """

    kernel: Kernel
    computed: Computed | None
    measured: Measured | None
    rejection: Rejection | None = None

    def to_json(self) -> dict[str, Any]:
        """The content of `kmint.profile/1`."""
        return {
            "op": self.kernel.op.name,
            "kernel": self.kernel.to_json(),
            "rejection": vars(self.rejection) if self.rejection else None,
            "computed": self.computed.to_json() if self.computed else None,
            "measured": self.measured.to_json() if self.measured else None,
        }


def profiled(kernel: Kernel, target: str | None, *, demand: Demand) -> Profile:
    """Compile the kernel for `target`, or for the GPU that is here, and measure it on that GPU.

    Without a GPU a typical card stands for it. Raises EnvironmentUnfit, TimedOut, and UsageError for
    a task without a case.
    """
    from kmint_tui.profiling.computed import computed
    from kmint_tui.profiling.measured import measured
    from referee.gpu.compile_candidate import CandidateSource, compile_candidate
    from referee.gpu.replayer import Replayer
    from referee.problem import Problem
    from referee.sandbox.zygote import Workers
    from referee.target import Target
    from referee.verdict import Rejection

    problem = Problem(kernel.task)
    cell, here = timed_case(problem), target is None and no_gpu_reason() is None
    with referee_failures(demand), Workers(demand=demand) as workers:
        if here:
            with Replayer(cache=cache() / "baselines") as replayer:
                environment = replayer.environment()
                card = Target.from_json(environment["target"])
                source = CandidateSource(kernel.source, problem, workers, cache=cache() / "kernels")
                found = source.at(replayer, cell, secrets.randbits(SEED_BITS))
        else:
            card = Target.parse(target) if target else Target()
            found = compile_candidate(
                workers, kernel.source, kernel.task, [cell], card, cache=cache() / "kernels"
            )
        if isinstance(found, Rejection):
            return Profile(kernel, None, None, found)
        facts = computed(found, card)
        return Profile(kernel, facts, measured(found, cache() / "baselines") if here else None)


def timed_case(problem: Problem) -> Cell:
    """The timed case, or the largest where none is timed. Raises UsageError without a case."""
    from referee.problem import required

    usual: Sequence[Cell] = required(problem.cells("gpu"))
    if not usual:
        raise UsageError("the reference has no inputs", fix="give some with --input")
    return problem.bench() or max(
        usual, key=lambda cell: sum(prod(spec.shape) for spec in cell.inputs)
    )
