"""The stability gate: judges and times the same candidate several times in fresh processes, each
with its own secret seed.

Every run has its own replay worker, its own drawn cells and an empty cache. Autotuned
configurations and inductor's choices are made again. A result is stable if, in every run, the 95 %
interval of the ratio to the fastest baseline lies above 1. Runs are not averaged. Torch-free.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from referee.gpu.jobs import CompiledCandidate
from referee.gpu.replayer import Replayer
from referee.timing.measurement import CANDIDATE, Timing, TimingOptions
from referee.timing.stats import Decision, Interval, geometric_mean
from referee.verdict import Rejection

RUNS = 5
SEED_BITS = 63

Prepare = Callable[[Replayer, int], CompiledCandidate | Rejection]
"""Prepares the candidate for a fresh replay worker and a seed, at every required cell."""


@dataclass(frozen=True, kw_only=True)
class GateRun:
    """One fresh process. Times are device microseconds.

    `ratio` is None if the candidate was rejected or nothing could be compared; `reason` says why.
    `decision` is None for a rejection, and `guard` names its guard.
    """

    seed: int
    decision: Decision | None
    bar: str | None = None
    ratio: Interval | None = None
    candidate_us: float | None = None
    bar_us: float | None = None
    reason: str = ""
    guard: str | None = None

    @property
    def above(self) -> bool:
        """Whether the interval lies above 1."""
        return self.ratio is not None and self.ratio.low > 1


@dataclass(frozen=True)
class GateReport:
    """All runs. `ratio` is their geometric mean, `spread` the largest by the smallest, minus 1."""

    stable: bool
    reason: str
    ratio: float | None
    spread: float | None
    runs: tuple[GateRun, ...]
    environment: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The report as plain dicts, lists and scalars."""
        return asdict(self)


def gate(
    prepare: Prepare,
    *,
    runs: int = RUNS,
    options: TimingOptions | None = None,
    on_run: Callable[[GateRun], None] | None = None,
    scratch: Path | None = None,
) -> GateReport:
    """Check every cell and time the bench cell in `runs` fresh processes. A rejection ends the
    gate.

    Each run has an empty cache in `scratch`; None means the system's temporary folder. Raises
    ReplayerError and the errors of `prepare`.
    """
    chosen = replace(options or TimingOptions(), show_graphed=True)
    done: list[GateRun] = []
    environment: dict[str, Any] = {}
    for _ in range(runs):
        seed = secrets.randbits(SEED_BITS)
        with TemporaryDirectory(dir=scratch) as empty, Replayer(cache=Path(empty)) as fresh:
            environment = environment or fresh.environment()
            done.append(_one(fresh, prepare, seed, chosen))
        if on_run:
            on_run(done[-1])
        if done[-1].decision is None:
            break
    return replace(report(tuple(done), runs), environment=environment)


def report(done: tuple[GateRun, ...], wanted: int) -> GateReport:
    """The report on the finished runs; `wanted` is the number of planned runs."""
    ratios = [run.ratio.ratio for run in done if run.ratio]
    rejected = next((run for run in done if run.decision is None), None)
    above = sum(run.above for run in done)
    if rejected:
        reason = rejected.reason
    elif above == wanted:
        reason = f"in {wanted} of {wanted} fresh processes the interval lies above 1"
    else:
        reason = f"only in {above} of {wanted} fresh processes does the interval lie above 1"
    ratio = geometric_mean(ratios) if ratios else None
    spread = max(ratios) / min(ratios) - 1 if ratios else None
    return GateReport(above == wanted and rejected is None, reason, ratio, spread, done)


def _one(fresh: Replayer, prepare: Prepare, seed: int, options: TimingOptions) -> GateRun:
    prepared = prepare(fresh, seed)
    if isinstance(prepared, Rejection):
        return _rejected(seed, prepared)
    found: Timing | Rejection = fresh.check(prepared, seed=seed).rejection or fresh.time(
        prepared, seed=seed, options=options
    )
    if isinstance(found, Rejection):
        return _rejected(seed, found)
    mine, bar = found.device.get(CANDIDATE), found.device.get(found.bar or "")
    return GateRun(
        seed=seed,
        decision=found.decision,
        bar=found.bar,
        ratio=found.ratio,
        candidate_us=mine.median if mine else None,
        bar_us=bar.median if bar else None,
        reason=found.reason,
    )


def _rejected(seed: int, why: Rejection) -> GateRun:
    reason = f"rejected by {why.guard}: {why.reason}"
    return GateRun(seed=seed, decision=None, reason=reason, guard=why.guard)
