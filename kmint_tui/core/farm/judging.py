"""A farm as a judge: the same calls as those of a referee, for the mint loop and `kmint judge`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kmint_tui.core.farm.devices import CPU
from kmint_tui.core.farm.farm import Answer, Count, Farm, Tell, base
from kmint_tui.core.farm.job import Job, task_fields
from kmint_tui.typed import made

if TYPE_CHECKING:
    from kmint_tui.service.protocol import Demand, Level
    from referee.problem import TaskName
    from referee.variant_timing import VariantTime
    from referee.verdict import Mode, Verdict

ADDRESS, OTHERS = "job", "devices"
"""Fields of a verdict's environment: the job's address, and what the neighbours did."""


class FarmJudge:
    """Verdicts and races from a farm. Any number of threads may use it."""

    def __init__(self, farm: Farm, demand: Demand) -> None:
        self._farm, self._demand = farm, demand
        self._base: dict[str, Any] = {**base(farm), "demand": demand}

    @property
    def mode(self) -> Mode:
        """Whether kernels are replayed on a GPU or interpreted."""
        return "interpret" if self._farm.device == CPU else "replay"

    @property
    def spent(self) -> dict[str, float]:
        """Seconds by part of the GPU processes' work."""
        return self._farm.spent

    def job(
        self,
        source: str,
        op: str | TaskName,
        *,
        level: Level = "full",
        target: str | None = None,
        seed: int | None = None,
        batch_invariant: bool = False,
        strict: bool = False,
    ) -> Job:
        """The job of one verdict."""
        return Job(
            do="judge",
            sources=(source,),
            level=level,
            target=target,
            seed=seed,
            batch_invariant=batch_invariant,
            strict=strict,
            **task_fields(op),
            **self._base,
        )

    def judge(
        self,
        source: str,
        op: str | TaskName,
        *,
        level: Level = "full",
        target: str | None = None,
        seed: int | None = None,
        batch_invariant: bool = False,
        strict: bool = False,
        tell: Tell = lambda step: None,
        count: Count = lambda done, total: None,
    ) -> Verdict:
        """As `Referee.judge`. Raises KmintError where no worker could do it."""
        job = self.job(
            source,
            op,
            level=level,
            target=target,
            seed=seed,
            batch_invariant=batch_invariant,
            strict=strict,
        )
        return verdict_of(job, self._farm.submit(job, tell, count).result())

    def time_variants(
        self, sources: Sequence[str], op: str | TaskName, *, seed: int | None = None
    ) -> tuple[VariantTime, ...]:
        """As `Referee.time_variants`: each free device races its share against the first kernel.

        Devices with other work would make each share wait. Raises KmintError.
        """
        from referee.variant_timing import VariantTime

        first, others = sources[0], sources[1:]
        count = max(1, min(self._farm.free, len(others)))
        shares = [range(start, len(others), count) for start in range(count)]
        fields = task_fields(op)
        races = [
            self._farm.submit(
                Job(
                    do="race",
                    sources=(first, *(others[number] for number in share)),
                    seed=seed,
                    **fields,
                    **self._base,
                )
            )
            for share in shares
        ]
        found: dict[int, VariantTime] = {}
        for share, race in zip(shares, races, strict=True):
            laps = [made(VariantTime, lap, "a lap") for lap in race.result().done["laps"]]
            found.setdefault(-1, laps[0])
            found.update(zip(share, laps[1:], strict=True))
        return tuple(found[number] for number in range(-1, len(others)))


def verdict_of(job: Job, found: Answer) -> Verdict:
    """The verdict in an answer, with the job's address and what the neighbours did."""
    from referee.verdict import Verdict

    verdict = made(Verdict, found.done, "the verdict")
    return replace(
        verdict, environment={**verdict.environment, ADDRESS: job.address, OTHERS: found.others}
    )
