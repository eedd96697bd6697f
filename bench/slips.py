"""Slips of `kmint selftest` at several secret seeds, without a GPU: the seeds that accept each
slip, and the cells that reject it.

    python bench/slips.py [--seeds 4] [--name TEXT] [--kind wrong|cheats] [--json FILE]

A verdict ends at the first cell that rejects. Here every cell is judged, one after the other, in
separate processes. A slip that only one cell rejects depends on the values that the cell drew. If
some seed accepts it, one selftest would rarely have shown it. The screen of host code is off for
cheats. Limits: cells of a GPU are not covered, and a slip that another guard rejects before any
cell has no cells here.
"""

from __future__ import annotations

import argparse
import json
import platform
import secrets
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

from referee.candidate import Traced
from referee.concurrency import single_torch_thread
from referee.cpu_path import CpuPath, Judged
from referee.judge import Referee
from referee.selftest.corpus import ACCEPTED, Specimen, load
from referee.verdict import CellResult, Rejection

SCHEMA = "kmint.slips/1"
here = threading.local()


def every_cell(path: CpuPath, traced: Traced) -> Judged:
    """As `required_in_parallel`, but it goes on after a cell that rejects; `here.rejecting` gets
    the names of these cells.
    """
    results: list[CellResult] = []
    found: list[tuple[str, Rejection]] = []
    with single_torch_thread():
        for cell, plan in traced:
            some, rejection = path.required([(cell, plan)], among=traced)
            results += some
            found += [(cell.name, rejection)] if rejection else []
    here.rejecting = [name for name, _ in found]
    return tuple(results), found[0][1] if found else None


def judged(referee: Referee, specimen: Specimen) -> dict[str, Any]:
    """One verdict at a new seed: the guard, and the cells that reject, which is None where another
    guard came first.
    """
    here.rejecting, seed = None, secrets.randbits(62)
    verdict = referee.judge(specimen.source, specimen.op, level="correct", seed=seed)
    guard = ACCEPTED if verdict.passed else verdict.guard or verdict.verdict
    right = guard in specimen.expected("interpret", strict=False)
    return {"seed": seed, "guard": guard, "right": right, "rejecting": here.rejecting}


def at_seeds(referee: Referee, specimen: Specimen, seeds: int) -> dict[str, Any]:
    """A specimen's verdicts at this number of seeds."""
    runs = [judged(referee, specimen) for _ in range(seeds)]
    counts = [len(run["rejecting"]) for run in runs if run["rejecting"] is not None]
    wrong = sum(not run["right"] for run in runs)
    return {
        "name": specimen.name,
        "op": specimen.op,
        "mistakes": wrong,
        "fewest": min(counts, default=None),
        "runs": runs,
    }


def main() -> int:
    """Prints the slips that depend on one cell or two; exit code 0 when every verdict was right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--name", default="")
    parser.add_argument("--kind", choices=("wrong", "cheats"), default="wrong")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    chosen = [
        one for one in load(given.kind) if one.runs_on("interpret") and given.name in one.name
    ]
    start, rows = time.perf_counter(), list[dict[str, Any]]()
    with (
        patch.object(CpuPath, "required_in_parallel", every_cell),
        Referee(mode="interpret") as referee,
        ThreadPoolExecutor(given.threads) as pool,
    ):
        for row in pool.map(lambda one: at_seeds(referee, one, given.seeds), chosen):
            rows.append(row)
            if row["mistakes"] or row["fewest"] in (0, 1, 2):
                print(line(row), flush=True)
            write(given.json, rows, time.perf_counter() - start)
    counts = [row["fewest"] for row in rows if row["fewest"] is not None]
    mistakes = [row["name"] for row in rows if row["mistakes"]]
    print(
        f"{len(rows)} specimens, {given.seeds} seeds each; {counts.count(1)} hang on one cell; mistakes: {mistakes or 'none'}"
    )
    return 1 if mistakes else 0


def line(row: dict[str, Any]) -> str:
    """A specimen that few cells reject, and which."""
    cells = sorted({name for run in row["runs"] for name in run["rejecting"] or ()})
    shown = ", ".join(cells[:4]) + (f" and {len(cells) - 4} more" if len(cells) > 4 else "")
    return f"{row['name']:36s} {row['mistakes']} mistakes of {len(row['runs'])}; at least {row['fewest']} cells: {shown}"


def write(file: Path | None, rows: Sequence[dict[str, Any]], seconds: float) -> None:
    """Writes the rows so far, so that an interrupted run says how far it came."""
    if file:
        environment = {
            "python": platform.python_version(),
            "torch": version("torch"),
            "triton": version("triton"),
        }
        document = {
            "schema": SCHEMA,
            "environment": environment,
            "seconds": round(seconds, 1),
            "specimens": rows,
        }
        file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
