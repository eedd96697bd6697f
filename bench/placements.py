"""Whether a kernel's ratio depends on where its code and its memory lie, which change from judgement to judgement.

    python bench/placements.py [--times 24] [--kernels rmsnorm] [--flush 3x1] [--json FILE]

The same kernel, a tenth of whose rows is done twice, is judged again and again against its twin, 480 rounds each time, in four ways:
its code is loaded anew for every judgement, as the referee does; loaded once for all of them; loaded twelve times beforehand, and every
block of rounds runs another copy; or loaded anew, and both sides' memory is dealt out to them anew for every block. Printed for each: the
deviation of the ratios beside what that of single rounds makes of it (1 where judgements differ by chance only), how alike each is to the
one before it (near -1 where two places take turns), and the same of either side's times. With --json every time is kept, with the
addresses of the memory. Needs a CUDA device; about 15 s a way.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from bench import handmade
from bench.flushes import EXTRA_ROWS, SEED, cut_mean, named
from bench.smoke import Smoke
from referee.device.environment import describe_device
from referee.device.jobs import CellJob
from referee.device.replay_service import Loaded
from referee.measuring.baselines import Baselines
from referee.measuring.measurement import CANDIDATE, COMPILE, TimingOptions
from referee.measuring.stage import Contest, Stage
from referee.measuring.stats import TRIM, Floats
from referee.measuring.timing import Timer
from referee.ops.task import load
from referee.replaying.replay import Bound, Choice, Region, Runner
from referee.replaying.replay_check import Host

SCHEMA = "kmint.bench.placements/1"
COPIES = 12
OPTIONS = TimingOptions(least_rounds=480)


class Copies(Runner):
    """Runs one copy of the code for as many regions as a block has, then the next."""

    def __init__(self, runners: Sequence[Runner], a_block: int) -> None:
        self.plan, self._runners, self._a_block, self._bound = runners[0].plan, runners, a_block, 0

    def bind(self, region: Region, choice: Choice) -> Bound:
        """See Runner."""
        self._bound += 1
        return self._runners[(self._bound - 1) // self._a_block % len(self._runners)].bind(region, choice)


class Pooled(Stage):
    """Memory for all contestants in one, dealt out to their regions anew for every block."""

    def __init__(self, host: Host, contest: Contest, rounds: int) -> None:
        super().__init__(host, contest, rounds)
        regions = [*self._mine, *(region for theirs in self._theirs.values() for region in theirs)]
        sizes = [region.bytes.numel() for region in regions]
        for region in regions:
            region.bytes = torch.empty(0, dtype=torch.uint8, device=host.device)
        self._memory = torch.empty(sum(sizes), dtype=torch.uint8, device=host.device)
        self._sizes = {id(region): size for region, size in zip(regions, sizes, strict=True)}
        self._regions = regions

    def ahead(self) -> None:
        """See Stage."""
        dealt, start = list(self._regions), 0
        self._shuffled.shuffle(dealt)
        for region in dealt:
            size = self._sizes[id(region)]
            region.bytes, start = self._memory[start : start + size], start + size
        super().ahead()


def judged(smoke: Smoke, kernel: str, runner: Runner, seed: int) -> dict[str, Any]:
    """Both sides' times, in microseconds by block, and where their memory begins."""
    twin = Baselines({COMPILE: handmade.direct(kernel)}, {}, {})
    cell = handmade.bench_cell(kernel)
    timer = Timer(smoke.host, Contest(load(kernel, "gpu"), cell, runner, {}, False, twin, seed), OPTIONS, smoke.flush, smoke.clocks)
    timer.measure()
    stage = timer._stage
    memory = [stage._mine[0].bytes.data_ptr(), stage._theirs[COMPILE][0].bytes.data_ptr()]
    times = {name: [[round(float(us), 3) for us in block[name]] for block in timer.record.blocks] for name in (CANDIDATE, COMPILE)}
    return {"memory": memory, "times": times}


def anew(smoke: Smoke, kernel: str, times: int) -> list[dict[str, Any]]:
    """Code loaded for every judgement."""
    found = []
    for number in range(times):
        with Loaded(smoke.host, job_of(smoke, kernel)) as runner:
            found.append(judged(smoke, kernel, runner, SEED + number))
    return found


def once(smoke: Smoke, kernel: str, times: int) -> list[dict[str, Any]]:
    """Code loaded for all judgements."""
    with Loaded(smoke.host, job_of(smoke, kernel)) as runner:
        return [judged(smoke, kernel, runner, SEED + number) for number in range(times)]


def copies(smoke: Smoke, kernel: str, times: int) -> list[dict[str, Any]]:
    """Code loaded several times, one copy for each block of a judgement."""
    with ExitStack() as stack:
        runners = [stack.enter_context(Loaded(smoke.host, job_of(smoke, kernel))) for _ in range(COPIES)]
        return [judged(smoke, kernel, Copies(runners, OPTIONS.rounds + 1), SEED + number) for number in range(times)]


def pooled(smoke: Smoke, kernel: str, times: int) -> list[dict[str, Any]]:
    """Code loaded for every judgement, memory dealt out for every block."""
    with mock.patch("referee.measuring.timing.Stage", Pooled):
        return anew(smoke, kernel, times)


WAYS: dict[str, Callable[[Smoke, str, int], list[dict[str, Any]]]] = {
    "anew": anew,
    "once": once,
    "copies": copies,
    "pooled": pooled,
}


def job_of(smoke: Smoke, kernel: str) -> CellJob:
    """The kernel at its bench cell, with a tenth of its rows done twice."""
    return handmade.job(kernel, handmade.bench_cell(kernel), arch=smoke.arch, extra_rows=EXTRA_ROWS)


def figures(judgements: Sequence[Floats]) -> tuple[float, float, float]:
    """Of logarithms by judgement: the deviation of their means, that divided by what single rounds make of it, and how alike each is to
    the one before."""
    means = np.array([cut_mean(values, TRIM) for values in judgements])
    chance = math.sqrt(float(np.mean([values.var() / values.size for values in judgements])))
    off = means - means.mean()
    return float(means.std(ddof=1)), float(means.std(ddof=1)) / chance, float((off[1:] * off[:-1]).sum() / (off**2).sum())


def logs(judgement: dict[str, Any], name: str) -> Floats:
    """Logarithms of one side's times."""
    return np.asarray(np.log(np.concatenate([np.array(block) for block in judgement["times"][name]])), dtype=np.float64)


def show(way: str, kernel: str, found: Sequence[dict[str, Any]]) -> None:
    """One line a series."""
    series: dict[str, list[Floats]] = {name: [logs(each, name) for each in found] for name in (CANDIDATE, COMPILE)}
    series["ratio"] = [theirs - mine for mine, theirs in zip(series[CANDIDATE], series[COMPILE], strict=True)]
    memory = len({tuple(each["memory"]) for each in found})
    print(f"{way}, {kernel}: memory at {memory} places", flush=True)
    for name, values in series.items():
        usable = [each[np.isfinite(each)] for each in values]
        deviation, beyond, alike = figures(usable)
        print(f"    {name:10s} deviation {deviation:.3%}, {beyond:.2f} times that of chance, like the one before {alike:+.2f}", flush=True)


def main() -> None:
    """Print what each way gives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=24)
    parser.add_argument("--kernels", default="rmsnorm")
    parser.add_argument("--flush", default="3x1")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        smoke = Smoke(Path(cache))
        smoke.flush = named(given.flush, smoke.flush.l2_bytes)
        document: dict[str, Any] = {"schema": SCHEMA, "environment": describe_device(smoke.driver), "flush": given.flush, "found": []}
        for kernel in given.kernels.split(","):
            for way in given.ways.split(","):
                found = WAYS[way](smoke, kernel, given.times)
                show(way, kernel, found)
                document["found"].append({"kernel": kernel, "way": way, "judgements": found})
                if given.json:
                    given.json.write_text(json.dumps(document) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
