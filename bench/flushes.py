"""Which flush of the L2 cache lets the same judgement be repeated best, and what it costs.

    python bench/flushes.py [--times 20] [--json FILE]

Judges kernels again and again against twins that repeat a tenth of the rows less, once with the referee's own flush and once with one
that rewrites its whole buffer. Prints for each kernel the standard deviation and the spread (highest / lowest - 1) of the ratios, and
the seconds of a judgement with their parts. Needs a CUDA device; about two minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import handmade
from bench.gpu_smoke import Smoke
from bench.timing_noise import WriteAll
from referee.device.environment import describe_device
from referee.measuring.baselines import Baselines
from referee.measuring.measurement import COMPILE
from referee.measuring.rounds import Flush

KERNELS = ("rmsnorm", "softmax", "relu2")
EXTRA_ROWS = 0.1
SEED = 5000
FLUSHES: dict[str, type[Flush]] = {"the referee's": Flush, "write everything": WriteAll}


def repeated(smoke: Smoke, kernel: str, times: int) -> dict[str, Any]:
    """`times` judgements with the flush that `smoke` holds."""
    twin = Baselines({COMPILE: handmade.direct(kernel)}, {}, {})
    ratios, seconds, rounds, parts = [], [], [], dict[str, float]()
    for number in range(times):
        start = time.perf_counter()
        result = smoke.timing(kernel, kernel, twin, SEED + number, extra_rows=EXTRA_ROWS)
        seconds.append(time.perf_counter() - start)
        assert result.ratio is not None
        ratios.append(result.ratio.ratio)
        rounds.append(result.rounds)
        for part, spent in result.seconds.items():
            parts[part] = parts.get(part, 0.0) + spent / times
    return {
        "kernel": kernel,
        "ratios": ratios,
        "deviation": statistics.stdev(ratios) / statistics.mean(ratios),
        "spread": max(ratios) / min(ratios) - 1,
        "rounds": statistics.mean(rounds),
        "seconds": statistics.median(seconds),
        "parts": parts,
    }


def main() -> None:
    """Print one line a flush and kernel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        smoke = Smoke(Path(cache))
        found: list[dict[str, Any]] = []
        document = {"schema": "kmint.bench.flushes/1", "environment": describe_device(smoke.driver), "flushes": found}
        for label, kind in FLUSHES.items():
            smoke.flush = kind(smoke.flush.l2_bytes)
            for kernel in KERNELS:
                found.append({"flush": label, **repeated(smoke, kernel, given.times)})
                one = found[-1]
                parts = ", ".join(f"{part} {spent:.3f}" for part, spent in one["parts"].items())
                figures = f"deviation {one['deviation']:.3%}, spread {one['spread']:.2%}, {one['rounds']:.0f} rounds"
                print(f"{label:18s} {kernel:8s} {figures}, {one['seconds']:.3f} s ({parts})", flush=True)
                if given.json:
                    given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
