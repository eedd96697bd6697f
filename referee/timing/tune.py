"""Picks the fastest by device time at one test case: autotune configurations of a plan, or one of
several plans.

Launches are tuned one after the other, with the others at their choice so far. The choice is then
fixed. Correctness and timing hold for that configuration alone, and the report names it. Runs in
the replay worker, CUDA only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from referee.ops.spec import Cell
from referee.ops.values import draw
from referee.plans.arena import NAN, layout
from referee.plans.plan import Launch
from referee.replaying.replay import Bound, PlanFault, Region, Runner, slab_bytes
from referee.replaying.replay_check import CANDIDATE_SECONDS, REFEREE_SECONDS, Host, queue
from referee.timing.measurement import ChosenConfigs
from referee.timing.rounds import Entry, Flush, run_block, usable_medians
from referee.timing.stats import Floats

ROUNDS = 6
RACE_ROUNDS = 16
RACE_SHARE = 0.25  # of the free memory of the GPU, which others may need


def tune(host: Host, runner: Runner, cell: Cell, seed: int, flush: Flush) -> ChosenConfigs:
    """Times every configuration briefly. Raises PlanFault if a launch has none that runs."""
    host.progress("drawing inputs to tune with", REFEREE_SECONDS, "referee")
    region = Region(runner.plan, host.device)
    region.fill(draw(cell, seed, host.device), NAN)
    tuned = ChosenConfigs({}, {}, {})
    for number, step in enumerate(runner.plan.steps):
        if isinstance(step, Launch) and len(step.configs) > 1:
            _tune_launch(host, runner, region, number, tuned, flush)
    return tuned


def _tune_launch(
    host: Host, runner: Runner, region: Region, number: int, tuned: ChosenConfigs, flush: Flush
) -> None:
    entries = []
    refused: dict[int, str] = {}
    for which in runner.configurations(number):
        choice = {**tuned.choice, number: which}
        host.progress(
            f"trying configuration {which} of launch {number}", CANDIDATE_SECONDS, "candidate"
        )
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
    step = f"timing {len(entries)} configurations of launch {number}"
    host.progress(step, CANDIDATE_SECONDS * 6, "candidate")
    block = run_block(entries, ROUNDS, flush, np.random.default_rng(0))
    host.wait()
    times = usable_medians(block)
    tuned.times[number], tuned.refused[number] = times, refused
    tuned.choice[number] = (
        min(times, key=lambda which: times[which]) if times else int(entries[0].name)
    )


def race(
    host: Host, runners: Sequence[Runner], cell: Cell, seed: int, flush: Flush
) -> list[tuple[float, float]]:
    """Times plans of one operation against the first, interleaved.

    Returns the median microseconds of each, and the first's time divided by it; NaN without a
    usable sample. Every plan has separate memory; a block holds as many plans as fit.
    """
    host.progress("drawing inputs to race with", REFEREE_SECONDS, "referee")
    inputs = draw(cell, seed, host.device)
    room = max(slab_bytes(layout(runner.plan)) for runner in runners)
    at_once = max(1, int(RACE_SHARE * torch.cuda.mem_get_info()[0]) // room - 1)
    found: list[tuple[float, float]] = []
    for start in range(1, max(2, len(runners)), at_once):
        group = [runners[0], *runners[start : start + at_once]]
        regions = [Region(runner.plan, host.device) for runner in group]
        entries = []
        for number, (runner, region) in enumerate(zip(group, regions, strict=True)):
            region.fill(inputs, NAN)
            entries.append(Entry(str(number), _queueing(host, runner.bind(region, {}))))
        host.wait()
        host.progress(f"racing {len(group)} plans", CANDIDATE_SECONDS * 6, "candidate")
        run_block(entries, 2, flush, np.random.default_rng(0))
        block = run_block(entries, RACE_ROUNDS, flush, np.random.default_rng(seed))
        host.wait()
        times = [block.times[entry.name] for entry in entries]
        pairs = [(_median(own), _median(times[0] / own)) for own in times]
        found += pairs if not found else pairs[1:]
        del regions, entries
    return found


def _median(values: Floats) -> float:
    return float(np.nanmedian(values)) if np.isfinite(values).any() else float("nan")


def _queueing(host: Host, bound: Bound) -> Callable[[int], object]:
    return lambda _: bound.run(host.stream())
