"""Slow-downs of a known size: how many rows a hand-written kernel has to do twice to take so much longer.

A row that is done twice takes less than its share of the time, because it may still lie in a cache. So the share of rows is sought for
which medians of plain calls, interleaved and flushed as in a verdict but judged by nobody, differ by the slow-down. Limits: known to
about a thousandth, by events of the same GPU.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from bench import handmade
from bench.gpu_smoke import SEED, Smoke
from referee.arena import NAN
from referee.ops.values import draw
from referee.replay import Region, Runner
from referee.replay_service import Loaded
from referee.rounds import Entry, run_block

PLACES, ROUNDS, BLOCKS = 8, 100, 15  # memory that calls take turns with, calls of each in a block, blocks
CLOSE, ATTEMPTS = 0.001, 4


@dataclass(frozen=True)
class Planted:
    """The share of rows that are done twice, and how much longer a call takes."""

    rows: float
    slower: float


def plant(smoke: Smoke, kernel: str, slowdown: float) -> Planted:
    """A slow-down of that share of the time, or the last one tried. Raises RuntimeError when none is near it."""
    found = Planted(slowdown, _slower(smoke, kernel, slowdown))
    for _ in range(ATTEMPTS - 1):
        if abs(found.slower - slowdown) <= CLOSE:
            break
        rows = found.rows + (slowdown - found.slower)
        found = Planted(rows, _slower(smoke, kernel, rows))
    if abs(found.slower - slowdown) > 2 * CLOSE:
        raise RuntimeError(f"{kernel} with {found.rows:.2%} of its rows done twice is {found.slower:.2%} slower, and not {slowdown:.0%}")
    return found


def _slower(smoke: Smoke, kernel: str, rows: float) -> float:
    cell = handmade.bench_cell(kernel)
    jobs = [handmade.job(kernel, cell, arch=smoke.arch, extra_rows=extra) for extra in (0.0, rows)]
    inputs = draw(cell, SEED, smoke.host.device)
    with ExitStack() as stack:
        runners = [stack.enter_context(Loaded(smoke.host, job)) for job in jobs]
        regions = [[Region(runner.plan, smoke.host.device) for _ in range(PLACES)] for runner in runners]
        for region in (region for places in regions for region in places):
            region.fill(inputs, NAN)
        entries = [_entry(smoke, str(index), *pair) for index, pair in enumerate(zip(runners, regions, strict=True))]
        generator = np.random.default_rng(SEED)
        blocks = [run_block(entries, ROUNDS, smoke.flush, generator, during=lambda: None).times for _ in range(BLOCKS)]
    plain, slow = (np.nanmedian(np.concatenate([block[name] for block in blocks])) for name in ("0", "1"))
    return float(slow / plain) - 1.0


def _entry(smoke: Smoke, name: str, runner: Runner, regions: list[Region]) -> Entry:
    bound = [runner.bind(region, {}) for region in regions]
    return Entry(name, lambda index: bound[index % PLACES].run(smoke.host.stream()))
