"""Pick one configuration for every autotuned launch of a plan, by device time at one cell.

Launches are tuned one after the other, the others held at the choice so far. The choice is frozen afterwards: correctness
and timing are of that configuration alone, and the report says which. Runs in the replay worker, CUDA only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from referee.arena import NAN
from referee.ops.spec import Cell
from referee.ops.values import draw
from referee.plan import Launch
from referee.replay import Bound, PlanFault, Region, Runner
from referee.replay_check import CANDIDATE_SECONDS, REFEREE_SECONDS, Host, queue
from referee.rounds import Entry, Flush, run_block

ROUNDS = 6


@dataclass(frozen=True)
class Tuned:
    """The configuration by step number, microseconds of each one tried, and why others could not run."""

    choice: dict[int, int]
    times: dict[int, dict[int, float]]
    refused: dict[int, dict[int, str]]


def tune(host: Host, runner: Runner, cell: Cell, seed: int, flush: Flush) -> Tuned:
    """Time every configuration briefly. Raises PlanFault when none of a launch's configurations can run."""
    host.progress("drawing inputs to tune with", REFEREE_SECONDS, "referee")
    region = Region(runner.plan, host.device)
    region.fill(draw(cell, seed, host.device), NAN)
    tuned = Tuned({}, {}, {})
    for number, step in enumerate(runner.plan.steps):
        if isinstance(step, Launch) and len(step.configs) > 1:
            _tune_launch(host, runner, region, number, tuned, flush)
    return tuned


def _tune_launch(host: Host, runner: Runner, region: Region, number: int, tuned: Tuned, flush: Flush) -> None:
    entries = []
    refused: dict[int, str] = {}
    for which in runner.configurations(number):
        choice = {**tuned.choice, number: which}
        host.progress(f"trying configuration {which} of launch {number}", CANDIDATE_SECONDS, "candidate")
        try:
            queue(host, runner, region, choice)
            host.wait()
        except PlanFault as error:
            if error.sticky:
                raise
            refused[which] = error.reason
            continue
        entries.append(Entry(str(which), _queueing(host, runner.bind(region, choice))))
    if not entries:
        first = next(iter(refused.values()), "none was compiled")
        raise PlanFault("kernel_error", f"no configuration of launch {number} can run: {first}")
    host.progress(f"timing {len(entries)} configurations of launch {number}", CANDIDATE_SECONDS * 6, "candidate")
    block = run_block(entries, ROUNDS, flush, np.random.default_rng(0), during=lambda: None)
    host.wait()
    times = {int(name): float(np.nanmedian(found)) for name, found in block.times.items() if np.isfinite(found).any()}
    tuned.times[number], tuned.refused[number] = times, refused
    tuned.choice[number] = min(times, key=lambda which: times[which]) if times else int(entries[0].name)


def _queueing(host: Host, bound: Bound) -> Callable[[int], object]:
    return lambda _: bound.run(host.stream())
