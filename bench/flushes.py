"""Which flush of the L2 cache lets the same judgement be repeated best, what it costs, and which mean of the rounds repeats best.

    python bench/flushes.py [--times 20] [--kernels rmsnorm,softmax,relu2] [--flushes 3x1,3x1-part,3x2] [--profile] [--json FILE]

3x1 is the referee's own: it reads a buffer of three times what L2 holds once. -own reads with a Triton kernel (`own_reads.py`), -part
rewrites as much as L2 holds before that, and -all the whole buffer. Kernels are judged again and again against twins that repeat a tenth
of the rows less, 480 rounds each time. Printed for each: the microseconds of a flush, of a call, and the standard deviation of the ratios
when each is the mean of the first 240 or of all rounds, from the median (50 % cut on either side) to the plain mean (0 %).

With --json every log-ratio is kept, in units of 1e-5, so that other means can be compared later. --profile prints what the device spent
its time on in one more judgement with each flush. Needs a CUDA device; about 15 s a flush and kernel.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from bench import handmade
from bench.own_reads import OwnReads
from bench.smoke import Smoke
from bench.timing_noise import WriteAll
from referee.device.environment import describe_device
from referee.measuring import stats
from referee.measuring.baselines import Baselines
from referee.measuring.measurement import CANDIDATE, COMPILE
from referee.measuring.rounds import Entry, Flush, run_block

SCHEMA = "kmint.bench.flushes/2"
EXTRA_ROWS = 0.1
SEED = 5000
BLOCKS = (6, 12)  # of 40 rounds
CUTS = (0.5, 0.25, 0.2, 0.15, 0.1, 0.05, 0.0)


class WritePart(Flush):
    """Rewrites as much as L2 holds first."""

    def queue(self) -> None:
        """Queue the flush kernel by kernel."""
        self._buffer[: self.l2_bytes // 4].add_(1)
        super().queue()


KINDS: dict[str, type[Flush]] = {"": Flush, "-own": OwnReads, "-part": WritePart, "-all": WriteAll}


def named(name: str, l2_bytes: int) -> Flush:
    """The flush called FACTORxREADS, with one of KINDS behind it. Raises ValueError, KeyError."""
    figures, dash, kind = name.partition("-")
    factor, reads = map(int, figures.split("x"))
    return KINDS[dash + kind](l2_bytes, factor=factor, reads=reads)


def flush_us(flush: Flush, repeats: int = 50) -> float:
    """Median microseconds of one flush between two events, right behind another one."""
    block = run_block([Entry("flush", lambda _: flush())], repeats, flush, np.random.default_rng(0), during=lambda: None)
    return float(np.nanmedian(block.times["flush"]))


def judged(smoke: Smoke, kernel: str, seed: int) -> tuple[list[stats.Floats], float, float]:
    """Log-ratios of every block of one judgement, the candidate's median microseconds, and the seconds that its rounds took."""
    twin = Baselines({COMPILE: handmade.direct(kernel)}, {}, {})
    found, record = smoke.recorded(kernel, kernel, twin, seed, EXTRA_ROWS, least_rounds=480)
    return list(record.log_ratios(COMPILE)), found.device[CANDIDATE].median, found.seconds["rounds"]


def cut_mean(values: stats.Floats, cut: float) -> float:
    """The mean without the lowest and the highest `cut` of the values; 0.5 is the median."""
    if cut == 0.5:
        return float(np.median(values))
    ordered, out = np.sort(values), int(cut * values.size)
    return float(ordered[out : values.size - out].mean())


def deviations(judgements: Sequence[Sequence[stats.Floats]]) -> dict[str, dict[str, float]]:
    """Standard deviations over judgements, by how many blocks count and how much is cut off."""
    return {
        f"{blocks} blocks": {
            f"{cut:.0%}": statistics.stdev(cut_mean(np.concatenate(each[:blocks]), cut) for each in judgements) for cut in CUTS
        }
        for blocks in BLOCKS
    }


def repeated(smoke: Smoke, kernel: str, times: int) -> dict[str, Any]:
    """`times` judgements with the flush that `smoke` holds; one before them does not count."""
    found = [judged(smoke, kernel, SEED + number) for number in range(times + 1)][1:]
    logs = [blocks for blocks, _, _ in found]
    everything = np.concatenate([block for blocks in logs for block in blocks])
    return {
        "kernel": kernel,
        "call_us": statistics.median(us for _, us, _ in found),
        "ratio": float(np.exp(cut_mean(everything, 0.25))),
        "sigma_round": float(everything.std()),
        "deviations": deviations(logs),
        "rounds_seconds": statistics.median(seconds for _, _, seconds in found),
        "logs": [[[round(1e5 * value) for value in block.tolist()] for block in blocks] for blocks in logs],
    }


def profile(work: Callable[[], object]) -> None:
    """Print the kernels that took longest while `work` ran."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        work()
    print(seen.key_averages().table(sort_by="cuda_time_total", row_limit=14, max_name_column_width=60), flush=True)


def main() -> None:
    """Print one line a flush and kernel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--kernels", default="rmsnorm,softmax,relu2")
    parser.add_argument("--flushes", default="3x1,3x1-part,3x2")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    if given.times < 2:
        parser.error("--times must be at least 2: a standard deviation needs two judgements")
    with tempfile.TemporaryDirectory() as cache:
        smoke = Smoke(Path(cache))
        found: list[dict[str, Any]] = []
        document = {"schema": SCHEMA, "environment": describe_device(smoke.driver), "flushes": found}
        for name in given.flushes.split(","):
            smoke.flush = named(name, smoke.flush.l2_bytes)
            took = flush_us(smoke.flush)
            for kernel in given.kernels.split(","):
                one = {"flush": name, "flush_us": took, **repeated(smoke, kernel, given.times)}
                found.append(one)
                shown = f"flush {took:.1f} us, call {one['call_us']:.1f} us, ratio {one['ratio']:.4f}, round {one['sigma_round']:.2%}"
                print(f"{name:8s} {kernel:8s} {shown}, rounds {one['rounds_seconds']:.3f} s", flush=True)
                for blocks, by_cut in one["deviations"].items():
                    print(f"    {blocks:9s} " + "  ".join(f"{cut} {value:.3%}" for cut, value in by_cut.items()), flush=True)
                if given.json:
                    given.json.write_text(json.dumps(document) + "\n", encoding="utf-8")
            if given.profile:
                profile(partial(judged, smoke, given.kernels.split(",")[0], SEED))


if __name__ == "__main__":
    main()
