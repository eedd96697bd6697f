"""Agreement of full verdicts on the same kernel: each kernel is judged again and again, against the
same baselines.

    python bench/repeated_verdicts.py [--ops OP ...] [--times 20] [--json FILE]

Every verdict repeats all its steps except the baselines, which are built once. `timing_quality.py`
repeats only the timing, of hand-written kernels against their own twins. The script prints one line
for each op and the widest spread of a ratio (highest / lowest - 1). The referee promises a spread
of at most 1 %. Exit code 0 when it holds. The script needs a CUDA device.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.judge_catalogue import candidates, row
from referee.gpu.replayer import Replayer
from referee.judge import Referee

SCHEMA = "kmint.bench.repeated_verdicts/1"
OPS = ("softmax", "l2norm", "rmsnorm_gelu", "add_rmsnorm_silu", "layernorm", "swiglu")
"""Ops that `judge_catalogue_h200` listed: plain wins, wins by little, losses and a tie."""
MOST_SPREAD = 0.01


def repeated(referee: Referee, op: str, source: str, times: int) -> dict[str, Any]:
    """`times` verdicts and the spread of their ratios."""
    referee.warm(op)
    verdicts = [referee.judge(source, op, level="full") for _ in range(times)]
    rows = [row(op, verdict, verdict.seconds["total"]) for verdict in verdicts]
    ratios = [one["ratio"]["ratio"] for one in rows if one["ratio"]]
    spread = max(ratios) / min(ratios) - 1 if len(ratios) == times else float("nan")
    environment = {
        key: value for key, value in verdicts[0].environment.items() if key != "executable"
    }
    return {"op": op, "spread": spread, "verdicts": rows, "environment": environment}


def main() -> int:
    """Print the table; exit code 0 when every spread is within the promise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", nargs="*", default=list(OPS))
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    if missing := Replayer.available():
        raise SystemExit(f"ratios need a GPU: {missing}")
    document: dict[str, Any] = {"schema": SCHEMA, "times": given.times, "ops": []}
    with tempfile.TemporaryDirectory() as cache, Referee(cache=Path(cache)) as referee:
        for op, source in candidates(given.ops, 0):
            found = repeated(referee, op, source, given.times)
            document["environment"] = found.pop("environment")
            document["ops"].append(found)
            ratios = [one["ratio"]["ratio"] for one in found["verdicts"] if one["ratio"]]
            counts = ", ".join(
                f"{count} {name}"
                for name, count in Counter(one["verdict"] for one in found["verdicts"]).items()
            )
            shown = f"ratio {min(ratios):.4f} to {max(ratios):.4f}, " if ratios else ""
            print(f"{op:28s} {counts:32s} {shown}spread {found['spread']:.4f}", flush=True)
            if given.json:
                given.json.write_text(
                    json.dumps(document, indent=1, default=str) + "\n", encoding="utf-8"
                )
    holds = all(found["spread"] <= MOST_SPREAD for found in document["ops"])
    print(
        f"{'OK  ' if holds else 'FAIL'} every ratio within {MOST_SPREAD:.0%} over {given.times} verdicts",
        flush=True,
    )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
