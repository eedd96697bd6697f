"""Reliability of timing verdicts: twins must not win, planted slow-downs must lose, repeated
judgements must agree.

    python bench/timing_quality.py [--twins 500] [--planted 100] [--repeats 20] [--json FILE]

A twin is the same machine code, launched by Triton as the "baseline" and replayed from a plan as
the candidate. A planted slow-down repeats rows so that a call takes 2 % or 5 % longer
(`planted.py`). The script prints one line for each kernel and kind, then the three acceptance
lines. With 0 of a kind it makes none. It needs a CUDA device.

With --json the script writes every group as soon as it is done. It does not measure groups again
that FILE already holds from the same device, versions and options. The whole run takes longer than
some machines are lent for.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from bench import handmade
from bench.planted import plant
from bench.smoke import Smoke
from referee.gpu.environment import describe_device
from referee.timing.baselines import Baselines
from referee.timing.measurement import COMPILE, TimingOptions

SCHEMA = "kmint.bench.timing_quality/1"
KERNELS = ("rmsnorm", "softmax", "relu2")
SLOWDOWNS = (0.02, 0.05)
PLANTED = {f"{slowdown:.0%} slower": slowdown for slowdown in SLOWDOWNS}
REPEATED = {"repeated": 0.0, "repeated at 10% slower": 0.1}
Group = list[dict[str, Any]]


def compare(smoke: Smoke, kernel: str, times: int, extra_rows: float, seed: int) -> Group:
    """`times` judgements of a kernel against its twin."""
    twin = Baselines({COMPILE: handmade.direct(kernel)}, {}, {})
    found = []
    for number in range(times):
        start = time.perf_counter()
        result, record = smoke.recorded(kernel, kernel, twin, seed + number, extra_rows)
        ratio, logs = result.ratio, record.log_ratios(COMPILE)
        found.append(
            {
                "decision": result.decision,
                "ratio": ratio.ratio if ratio else None,
                "low": ratio.low if ratio else None,
                "high": ratio.high if ratio else None,
                "rounds": result.rounds,
                "dropped": result.dropped_rounds,
                "seconds": time.perf_counter() - start,
                "round_deviation": float(np.concatenate(logs).std()) if logs else None,
                "blocks": [float(np.exp(np.median(block))) for block in logs if block.size],
                "sm_clock": asdict(result.sm_clock) if result.sm_clock else None,
                "temperature": asdict(result.temperature) if result.temperature else None,
            }
        )
    return found


def show(label: str, found: Group) -> None:
    """One line: decisions, range of the ratio, seconds a judgement."""
    ratios = [item["ratio"] for item in found if item["ratio"]]
    counts = ", ".join(
        f"{count} {name}"
        for name, count in sorted(Counter(item["decision"] for item in found).items())
    )
    seconds = sum(item["seconds"] for item in found) / max(1, len(found))
    rounds = sum(item["rounds"] for item in found) / max(1, len(found))
    print(
        f"{label:26s} {counts:44s} ratio {min(ratios):.4f} to {max(ratios):.4f}, {rounds:.0f} rounds, {seconds:.2f} s each",
        flush=True,
    )


def plan(twins: int, planted: int, repeats: int) -> list[tuple[str, str, int, float, int]]:
    """Every group: (kind, kernel, judgements, share of rows repeated unless that is to be found,
    first seed).
    """

    def share(total: int, number: int) -> int:
        return total // len(KERNELS) + (number < total % len(KERNELS))

    groups = [
        (kind, kernel, repeats, extra, 3000)
        for kind, extra in REPEATED.items()
        for kernel in KERNELS
    ]
    groups += [
        (kind, k, share(planted, number), 0.0, 2000)
        for kind in PLANTED
        for number, k in enumerate(KERNELS)
    ]
    groups += [
        ("twin", kernel, share(twins, number), 0.0, 1000) for number, kernel in enumerate(KERNELS)
    ]
    return [group for group in groups if group[2]]


def judged(groups: dict[str, Group], kind: str) -> Group:
    """All judgements of a kind, over the kernels."""
    return [
        item for label, found in groups.items() if label.endswith(f", {kind}") for item in found
    ]


def share_of(found: Sequence[dict[str, Any]], decision: str) -> float:
    """How many of the judgements ended so, from 0 to 1."""
    return [item["decision"] for item in found].count(decision) / max(1, len(found))


def summary(groups: dict[str, Group]) -> dict[str, tuple[float, bool]]:
    """The value of each of the three statements that has measurements, and whether it holds."""
    found = {}
    if twins := judged(groups, "twin"):
        wins = share_of(twins, "win")
        found["twins that win"] = (wins, wins < 0.01)
    if planted := [each for kind in PLANTED if (each := judged(groups, kind))]:
        losses = min(share_of(each, "loss") for each in planted)
        found["planted losses found"] = (losses, losses >= 0.95)
    labels = [
        label
        for label in (f"{kernel}, {kind}" for kind in REPEATED for kernel in KERNELS)
        if label in groups
    ]
    if repeated := [[item["ratio"] for item in groups[label]] for label in labels]:
        spread = max(max(ratios) / min(ratios) - 1 for ratios in repeated)
        found["spread of repeats"] = (spread, spread <= 0.01)
    return found


def main() -> int:
    """Runs the requested groups; exit code 0 when all statements hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--twins", type=int, default=500)
    parser.add_argument("--planted", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        smoke = Smoke(Path(cache))
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "environment": describe_device(smoke.driver),
            "planted": {},
            "groups": {},
        }
        document["options"] = asdict(TimingOptions())
        if given.json and given.json.is_file():
            earlier = json.loads(given.json.read_text(encoding="utf-8"))
            if "planted" in earlier and all(
                earlier.get(part) == document[part] for part in ("environment", "options")
            ):
                document |= {part: earlier[part] for part in ("planted", "groups")}
        groups: dict[str, Group] = document["groups"]
        for kind, kernel, times, extra, seed in plan(given.twins, given.planted, given.repeats):
            label = f"{kernel}, {kind}"
            if len(groups.get(label, ())) < times:
                if kind in PLANTED:
                    found = plant(smoke, kernel, PLANTED[kind])
                    extra, document["planted"][label] = found.rows, asdict(found)
                groups[label] = compare(smoke, kernel, times, extra, seed)
            show(label, groups[label])
            if given.json:
                given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    statements = summary(groups)
    for label, (value, holds) in statements.items():
        print(f"{'OK  ' if holds else 'FAIL'} {label}: {value:.4f}", flush=True)
    return 0 if all(holds for _, holds in statements.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
