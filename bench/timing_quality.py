"""How far a timing verdict can be trusted: twins must not win, planted slow-downs must lose, repeated judgements must agree.

    python bench/timing_quality.py [--twins 500] [--planted 100] [--repeats 20] [--json FILE]

A twin is the same machine code, launched by Triton as the "baseline" and replayed from a plan as the candidate. A planted slow-down
repeats 2 % or 5 % of the rows. Prints one line per kernel and kind, then the three acceptance lines. Needs a CUDA device.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import handmade
from bench.gpu_smoke import Smoke
from referee.baselines import Baselines
from referee.environment import describe_device
from referee.measurement import COMPILE

KERNELS = ("rmsnorm", "softmax", "relu2")


def compare(smoke: Smoke, kernel: str, times: int, extra_rows: float, seed: int) -> list[dict[str, Any]]:
    """`times` judgements of a kernel against its twin."""
    twin = Baselines({COMPILE: handmade.direct(kernel)}, {}, {})
    found = []
    for number in range(times):
        start = time.perf_counter()
        result = smoke.timing(kernel, kernel, twin, seed + number, extra_rows=extra_rows)
        ratio = result.ratio
        found.append(
            {
                "kernel": kernel,
                "extra_rows": extra_rows,
                "decision": result.decision,
                "ratio": ratio.ratio if ratio else None,
                "low": ratio.low if ratio else None,
                "high": ratio.high if ratio else None,
                "rounds": result.rounds,
                "dropped": result.dropped_rounds,
                "seconds": time.perf_counter() - start,
            }
        )
    return found


def show(label: str, found: list[dict[str, Any]]) -> None:
    """One line: decisions, range of the ratio, seconds a judgement."""
    ratios = [item["ratio"] for item in found if item["ratio"]]
    counts = ", ".join(f"{count} {name}" for name, count in sorted(Counter(item["decision"] for item in found).items()))
    seconds = sum(item["seconds"] for item in found) / max(1, len(found))
    rounds = sum(item["rounds"] for item in found) / max(1, len(found))
    print(f"{label:26s} {counts:44s} ratio {min(ratios):.4f} to {max(ratios):.4f}, {rounds:.0f} rounds, {seconds:.2f} s each", flush=True)


def main() -> int:
    """Run everything; exit code 0 when all three statements hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--twins", type=int, default=500)
    parser.add_argument("--planted", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        smoke = Smoke(Path(cache))
        twins, planted, spreads = [], [], []
        environment = describe_device(smoke.driver)

        def keep() -> None:
            everything = [item for group in (*twins, *planted, *spreads) for item in group]
            if given.json:
                given.json.write_text(json.dumps({"environment": environment, "judgements": everything}, indent=1) + "\n", encoding="utf-8")

        for number, kernel in enumerate(KERNELS):
            share = given.twins // len(KERNELS) + (number < given.twins % len(KERNELS))
            twins.append(compare(smoke, kernel, share, 0.0, 1000))
            show(f"{kernel}, twin", twins[-1])
            keep()
        for extra in (0.02, 0.05):
            planted.append([item for kernel in KERNELS for item in compare(smoke, kernel, -(-given.planted // len(KERNELS)), extra, 2000)])
            show(f"{extra:.0%} slower", planted[-1])
            keep()
        for kernel in KERNELS:
            spreads.append(compare(smoke, kernel, given.repeats, 0.0, 3000))
            show(f"{kernel}, repeated", spreads[-1])
            keep()
        wins = sum(item["decision"] == "win" for group in twins for item in group) / max(1, given.twins)
        losses = [sum(item["decision"] == "loss" for item in group) / max(1, len(group)) for group in planted]
        spread = max(max(i["ratio"] for i in group) / min(i["ratio"] for i in group) - 1 for group in spreads)
        verdicts = {"twins that win": (wins, wins < 0.01), "planted losses found": (min(losses), min(losses) >= 0.95)}
        verdicts["spread of repeats"] = (spread, spread <= 0.01)
        for label, (value, holds) in verdicts.items():
            print(f"{'OK  ' if holds else 'FAIL'} {label}: {value:.4f}")
    return 0 if all(holds for _, holds in verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
