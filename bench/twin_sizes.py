"""Whether the way of timing favours anyone, by how much there is to do: a kernel against its own twin, at several sizes.

    python bench/twin_sizes.py [--times 10] [--mebibytes 2,8,32,64] [--flush 3x1,3x1-part] [--json FILE]

The twin is the same machine code, launched by Triton as the "baseline" and replayed from a plan as the candidate; the size is that of
the input, and as much is written. Printed for each: the mean ratio (above 1 the candidate seems faster) with its standard error over
whole measurements, their range, and the mean width of their intervals. A flush of 3x2 reads a buffer of three times what L2 holds
twice; `flushes.py` has others. Needs a CUDA device; about half a minute for each flush.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from bench import handmade
from bench.flushes import named
from bench.smoke import Smoke
from referee.device.environment import describe_device
from referee.device.replay_service import Loaded
from referee.measuring.baselines import Baselines
from referee.measuring.measurement import CANDIDATE, COMPILE, Timing, TimingOptions
from referee.measuring.rounds import FLUSH_FACTOR, READS, Flush
from referee.measuring.stage import Contest
from referee.measuring.timing import Timer
from referee.ops.spec import Cell
from referee.ops.task import load

SCHEMA = "kmint.bench.twin_sizes/1"
KERNEL = "relu2"
OPTIONS = TimingOptions(most_rounds=320)


def cell_of(mebibytes: float) -> Cell:
    """The kernel's bench cell with as many rows as make that much."""
    bench = handmade.bench_cell(KERNEL)
    (given,), (made,) = bench.inputs, bench.outputs
    shape = (max(1, int(mebibytes * 2**20) // (handmade.ITEM[given.dtype] * given.shape[1])), given.shape[1])
    return replace(bench, inputs=(replace(given, shape=shape),), outputs=(replace(made, shape=shape),))


def measured(smoke: Smoke, cell: Cell, seed: int, flush: Flush) -> Timing:
    """One whole measurement of the kernel against its twin."""
    twin = Baselines({COMPILE: handmade.direct(KERNEL)}, {}, {})
    with Loaded(smoke.host, handmade.job(KERNEL, cell, arch=smoke.arch)) as runner:
        contest = Contest(load(KERNEL, "gpu"), cell, runner, {}, False, twin, seed)
        return Timer(smoke.host, contest, OPTIONS, flush, smoke.clocks).measure()


def line(flush: str, mebibytes: float, found: list[Timing]) -> dict[str, Any]:
    """What `found` says of one size."""
    ratios = [one.ratio for one in found if one.ratio]
    logs = [math.log(ratio.ratio) for ratio in ratios]
    return {
        "flush": flush,
        "mebibytes": mebibytes,
        "device_us": statistics.median(one.device[CANDIDATE].median for one in found),
        "ratio": math.exp(statistics.mean(logs)),
        "standard_error": statistics.stdev(logs) / math.sqrt(len(logs)),
        "lowest": math.exp(min(logs)),
        "highest": math.exp(max(logs)),
        "width": statistics.mean(ratio.high - ratio.low for ratio in ratios),
        "decisions": {decision: sum(one.decision == decision for one in found) for decision in ("win", "tie", "loss", "unsure")},
        "dropped_rounds": sum(one.dropped_rounds for one in found),
        "rounds_seconds": statistics.median(one.seconds["rounds"] for one in found),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--mebibytes", default="2,8,32,64")
    parser.add_argument("--flush", default=f"{FLUSH_FACTOR}x{READS}", help="FACTORxREADS, several with commas")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.times < 2:
        parser.error("--times must be at least 2: a standard error needs two measurements")
    sizes = []
    with tempfile.TemporaryDirectory() as cache:
        smoke = Smoke(Path(cache))
        l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        for name, mebibytes in itertools.product(given.flush.split(","), map(float, given.mebibytes.split(","))):
            flush, cell = named(name, l2_bytes), cell_of(mebibytes)
            # The first compiles, and does not count.
            found = [measured(smoke, cell, 1000 * number, flush) for number in range(given.times + 1)][1:]
            sizes.append(line(name, mebibytes, found))
            print(json.dumps({key: round(value, 4) if isinstance(value, float) else value for key, value in sizes[-1].items()}), flush=True)
        environment = describe_device(smoke.driver)
    if given.json:
        whole = {"schema": SCHEMA, "kernel": KERNEL, "options": asdict(OPTIONS), "sizes": sizes, "environment": environment}
        given.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
