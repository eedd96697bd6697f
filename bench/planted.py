"""Slow-downs of a known size: the share of rows that a hand-written kernel must do twice to take
that much longer.

A row that is done twice takes less than its share of the time, because it may still lie in a cache.
So the script times plain calls with several shares of the rows done twice, interleaved and flushed
as in a verdict. It fits a line through the origin to the medians, because one measurement is off by
some thousandths, depending on the place in memory. Limits: the share is as exact as the line fits.
Its error is reported, from events of the same GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from bench import handmade
from bench.smoke import Smoke
from referee.gpu.replay_service import Loaded
from referee.ops.values import draw
from referee.plans.arena import NAN
from referee.replaying.replay import Region, Runner
from referee.timing.rounds import Entry, run_block

PLACES, ROUNDS, BLOCKS = (
    8,
    100,
    15,
)  # memory that calls take turns with, calls of each in a block, blocks
SHARES = (0.8, 1.0, 1.2, 1.4)  # of rows that are done twice, for each share of the time
TIMES = 3
CLOSE = 0.001
SEED = 20240607


@dataclass(frozen=True)
class Planted:
    """The share of rows that are done twice, the standard error of how much longer that takes, and
    (share, slower) as measured.
    """

    rows: float
    error: float
    points: tuple[tuple[float, float], ...]


def plant(smoke: Smoke, kernel: str, slowdown: float) -> Planted:
    """A slow-down of that share of the time. Raises RuntimeError when the measurements do not lie
    on a line.
    """
    shares = [slowdown * share for share in SHARES for _ in range(TIMES)]
    points = tuple((share, _slower(smoke, kernel, share)) for share in shares)
    planted = fitted(points, slowdown)
    if planted.error > CLOSE:
        raise RuntimeError(
            f"how many rows of {kernel} done twice take {slowdown:.0%} longer is not known: {points}"
        )
    return planted


def fitted(points: Sequence[tuple[float, float]], slowdown: float) -> Planted:
    """The share of rows for a slow-down, by least squares through the origin."""
    shares, slower = np.array(points).T
    slope = float(shares @ slower / (shares @ shares))
    left = slower - slope * shares
    rows = slowdown / slope
    error = rows * float(np.sqrt(left @ left / (len(points) - 1) / (shares @ shares)))
    return Planted(rows, error, tuple(points))


def _slower(smoke: Smoke, kernel: str, rows: float) -> float:
    cell = handmade.bench_cell(kernel)
    jobs = [handmade.job(kernel, cell, arch=smoke.arch, extra_rows=extra) for extra in (0.0, rows)]
    inputs = draw(cell, SEED, smoke.host.device)
    with ExitStack() as stack:
        runners = [stack.enter_context(Loaded(smoke.host, job)) for job in jobs]
        regions = [
            [Region(runner.plan, smoke.host.device) for _ in range(PLACES)] for runner in runners
        ]
        for region in (region for places in regions for region in places):
            region.fill(inputs, NAN)
        entries = [
            _entry(smoke, str(index), *pair)
            for index, pair in enumerate(zip(runners, regions, strict=True))
        ]
        generator = np.random.default_rng(SEED)
        blocks = [
            run_block(entries, ROUNDS, smoke.flush, generator, during=lambda: None).times
            for _ in range(BLOCKS)
        ]
    plain, slow = (
        np.nanmedian(np.concatenate([block[name] for block in blocks])) for name in ("0", "1")
    )
    return float(slow / plain) - 1.0


def _entry(smoke: Smoke, name: str, runner: Runner, regions: list[Region]) -> Entry:
    bound = [runner.bind(region, {}) for region in regions]
    return Entry(name, lambda index: bound[index % PLACES].run(smoke.host.stream()))
