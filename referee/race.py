"""A race: variants of one kernel, timed against the first of them in one run. What is found is a hint, not a verdict.

Every variant is traced, compiled and checked at the timed cell by the same rules as a candidate; one that falls there is
reported with the reason and not timed. Of an autotuned launch the first configuration runs. The winner still has to be judged
at every cell. Needs a GPU. Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from referee.device.gpu import Replayer
from referee.device.jobs import Prepared, TaskName
from referee.device.prepare import prepare
from referee.ops.spec import Cell
from referee.sandbox.workers import Workers
from referee.target import Target
from referee.verdict import Rejection

_AT_ONCE = 8


class NoRace(Exception):
    """A race cannot be held; the message says why in one line."""


@dataclass(frozen=True)
class Lap:
    """How one variant did: median device microseconds, the first one's time over its own (above 1: faster), or why it was not timed."""

    us: float | None
    ratio: float | None
    refused: str = ""


def race(
    workers: Workers,
    replayer: Replayer,
    sources: Sequence[str],
    task: TaskName,
    cell: Cell,
    target: Target,
    *,
    seed: int,
    cache: Path | None = None,
) -> tuple[Lap, ...]:
    """One result for each of `sources`. Raises NoRace when the first does not pass, and what `prepare` and the replayer raise."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        # Traces and compilations run in the workers' processes; these threads only wait for them.
        found = list(pool.map(lambda source: prepare(workers, source, task, [cell], target, cache=cache), sources))
    checked = [_checked(replayer, one, seed) for one in found]
    first = checked[0]
    if isinstance(first, Rejection):
        raise NoRace(f"the kernel to start from does not pass: {first.reason}")
    fit = [(number, one) for number, one in enumerate(checked) if not isinstance(one, Rejection)]
    times = replayer.race([one for _, one in fit], seed=seed)
    if isinstance(times, Rejection):
        raise NoRace(times.reason)
    known = dict(zip((number for number, _ in fit), times, strict=True))
    return tuple(_lap(known[number]) if number in known else Lap(None, None, _reason(one)) for number, one in enumerate(checked))


def _checked(replayer: Replayer, prepared: Prepared | Rejection, seed: int) -> Prepared | Rejection:
    if isinstance(prepared, Rejection):
        return prepared
    return replayer.check(prepared, seed=seed).rejection or prepared


def _lap(measured: tuple[float, float]) -> Lap:
    us, ratio = measured
    return Lap(us, ratio) if math.isfinite(us) and math.isfinite(ratio) else Lap(None, None, "no usable sample")


def _reason(found: Prepared | Rejection) -> str:
    return found.reason if isinstance(found, Rejection) else ""
