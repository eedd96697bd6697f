"""The stability gate: the same candidate judged and timed again in fresh processes, each with its own secret seed.

Every run starts anew: a replay worker of its own, cells drawn from its own seed beside the fixed ones, the configuration of every
autotuned launch picked again, and baselines built in an empty cache, where inductor's autotuner picks again too. A result is stable
when in every run the whole 95 % interval of the ratio to that run's fastest baseline lies above 1. One run that does not is reported
as it is; nothing is averaged away. Torch-free; the work happens in the replay workers.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from referee.device.gpu import Replayer
from referee.device.jobs import Prepared
from referee.measuring.measurement import CANDIDATE, Timing, TimingOptions
from referee.measuring.stats import Decision, Interval, geometric_mean
from referee.verdict import Rejection

RUNS = 5
SEED_BITS = 63

Prepare = Callable[[Replayer, int], Prepared | Rejection]
"""Makes the candidate ready for a fresh replay worker and a seed, at every required cell."""


@dataclass(frozen=True)
class GateRun:
    """One fresh process. `ratio` is None when the candidate was rejected or nothing could be compared; `reason` says why.

    `decision` is None for a rejection, whose guard is then `guard`. Times are device microseconds.
    """

    seed: int
    decision: Decision | None
    bar: str | None
    ratio: Interval | None
    candidate_us: float | None
    bar_us: float | None
    reason: str = ""
    guard: str | None = None

    @property
    def above(self) -> bool:
        """The interval lies above 1."""
        return self.ratio is not None and self.ratio.low > 1


@dataclass(frozen=True)
class GateReport:
    """All runs; `ratio` is the geometric mean over those that have one, `spread` the largest over the smallest minus 1."""

    stable: bool
    reason: str
    ratio: float | None
    spread: float | None
    runs: tuple[GateRun, ...]
    environment: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and scalars."""
        return asdict(self)


def gate(
    prepare: Prepare,
    *,
    runs: int = RUNS,
    options: TimingOptions | None = None,
    on_run: Callable[[GateRun], None] | None = None,
) -> GateReport:
    """Check every cell and time the bench cell in `runs` fresh processes; stops at a rejection.

    Raises ReplayerError and what `prepare` raises.
    """
    chosen = replace(options or TimingOptions(), show_graphed=True)
    done: list[GateRun] = []
    environment: dict[str, Any] = {}
    for _ in range(runs):
        seed = secrets.randbits(SEED_BITS)
        with TemporaryDirectory() as empty, Replayer(cache=Path(empty)) as fresh:
            environment = environment or fresh.environment()
            done.append(_one(fresh, prepare, seed, chosen))
        if on_run:
            on_run(done[-1])
        if done[-1].decision is None:
            break
    return replace(report(tuple(done), runs), environment=environment)


def report(done: tuple[GateRun, ...], wanted: int) -> GateReport:
    """What `done` amounts to when `wanted` runs were asked for."""
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
    found: Timing | Rejection = fresh.check(prepared, seed=seed).rejection or fresh.time(prepared, seed=seed, options=options)
    if isinstance(found, Rejection):
        return _rejected(seed, found)
    mine, bar = found.device.get(CANDIDATE), found.device.get(found.bar or "")
    return GateRun(seed, found.decision, found.bar, found.ratio, mine.median if mine else None, bar.median if bar else None, found.reason)


def _rejected(seed: int, why: Rejection) -> GateRun:
    return GateRun(seed, None, None, None, None, None, f"rejected by {why.guard}: {why.reason}", why.guard)
