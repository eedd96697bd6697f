"""How grids and books scale to many GPUs: a simulation with measured times.

    python bench/many_gpus.py [--rows 50] [--json FILE]

It measures on this machine how many verdicts a second the driver takes: it makes the job, reads
the answer and writes the history. Processor time counts, and two waits for the disk, so that other
work on the machine changes little. The times of tasks are those of the kept measurements on an
H200. Then it simulates one driver and up to 1,024 GPUs; each GPU does one job at a time.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from math import exp, log
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.history import CELLS, CHECKS  # noqa: E402
from kmint_tui.core.farm.farm import AHEAD, Answer  # noqa: E402
from kmint_tui.core.farm.job import Job, Versions  # noqa: E402
from kmint_tui.core.farm.judging import verdict_of  # noqa: E402
from kmint_tui.core.keeping import Keeper  # noqa: E402
from kmint_tui.documents import compact, parse_json  # noqa: E402
from referee.verdict import CellResult, Check, Verdict  # noqa: E402

SCHEMA = "kmint.bench.many_gpus/1"
RESULTS = ROOT / "bench" / "results"
GPUS = (1, 2, 8, 64, 256, 1024)
NINTH_DECILE = 1.2816
"""The standard normal distribution's 0.9 quantile."""
COMMITS = 2
"""Transactions of a verdict: the draft before it, and the verdict."""
SIZES = (0, 200, 600)
"""Drafts that a session holds before its writes are timed."""


def kept(name: str) -> dict[str, Any]:
    """The figures of a kept result."""
    figures = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["figures"]
    assert isinstance(figures, dict)
    return figures


def measured_times() -> dict[str, list[float]]:
    """Seconds of verdicts with warm baselines, and of cells whose baselines are built first."""
    figures = kept("judge_catalogue_h200")
    median, tail = figures["median_seconds"], figures["ninth_decile_seconds"]
    spread = log(tail / median) / NINTH_DECILE
    chance = random.Random(1)
    warm = [median * exp(chance.gauss(0, spread)) for _ in range(4096)]
    cold = [float(one["seconds"]) for one in kept("mint_catalogue_h200")["operations"]]
    return {"verdict": warm, "cell": cold}


def writer(rows: int) -> dict[str, Any]:
    """Verdicts a second that one driver takes, by the size of the session that they go to."""
    verdict = Verdict(
        op="softmax",
        verdict="correct",
        stage="done",
        reason="agrees",
        guard=None,
        mode="interpret",
        checks=tuple(Check(one["name"], "pass", one["detail"]) for one in CHECKS),
        cells=tuple(CellResult(str(one["name"]), "required", "pass", 1e-6, 1e-5) for one in CELLS),
    )
    answer = compact({"answer": verdict.to_json()})
    versions, keeper = Versions.here(), Keeper("many", "full")
    found: dict[str, Any] = {"answer_bytes": len(answer), "rows_a_second": {}}
    made = 0
    with tempfile.TemporaryDirectory() as home:
        found["sync_seconds"] = round(_sync_seconds(Path(home)), 5)
        os.environ["KMINT_HOME"] = home
        with keeper.held():
            for size in SIZES:
                while made < size:
                    _row(keeper, versions, answer, made)
                    made += 1
                began = time.process_time()
                for _ in range(rows):
                    _row(keeper, versions, answer, made)
                    made += 1
                seconds = (time.process_time() - began) / rows + COMMITS * found["sync_seconds"]
                found["rows_a_second"][str(size)] = round(1 / seconds, 1)
        began = time.process_time()
        for number in range(rows):
            _job(versions, number, answer)
        found["jobs_a_second"] = round(rows / (time.process_time() - began), 1)
    return found


def _sync_seconds(folder: Path) -> float:
    """Seconds until a page is on the disk, median."""
    seconds = []
    with (folder / "page").open("wb") as file:
        for _ in range(21):
            file.write(bytes(4096))
            began = time.perf_counter()
            file.flush()
            os.fsync(file.fileno())
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def _job(versions: Versions, number: int, answer: str) -> tuple[Job, Verdict]:
    """The driver's work on a job apart from the history."""
    text = "    x = tl.load(x_ptr + offsets, mask=mask)\n" * 40
    source = f"# {number}\nNUMBER = {number}\n{text}"
    job = Job(do="judge", sources=(source,), op="softmax", device="NVIDIA H200", versions=versions)
    compact(asdict(job))
    return job, verdict_of(job, Answer(parse_json(answer)["answer"], "others idle"))


def _row(keeper: Keeper, versions: Versions, answer: str, number: int) -> None:
    job, verdict = _job(versions, number, answer)
    draft = keeper.before(job.sources[0], "softmax", "softmax")
    keeper.stored(draft)
    keeper.after(draft, verdict)


def simulated(jobs: Sequence[float], gpus: int, driver_seconds: float) -> float:
    """Seconds until one driver has the answers to all jobs. `jobs` are seconds on a GPU.

    The driver takes `driver_seconds` for each answer, and gives out `AHEAD` jobs for each GPU.
    """
    free = [0.0] * gpus
    ended: list[float] = []
    clock, given = 0.0, 0
    for _ in jobs:
        while given < len(jobs) and len(ended) < AHEAD * gpus:
            end = max(clock, heapq.heappop(free)) + jobs[given]
            heapq.heappush(free, end)
            heapq.heappush(ended, end)
            given += 1
        clock = max(clock, heapq.heappop(ended)) + driver_seconds
    return clock


def scaling(times: list[float], count: int, driver_seconds: float) -> dict[str, Any]:
    """Seconds and efficiency of `count` jobs on each number of GPUs."""
    chance = random.Random(count)
    jobs = [chance.choice(times) for _ in range(count)]
    alone = sum(jobs)
    found = {}
    for gpus in GPUS:
        seconds = simulated(jobs, gpus, driver_seconds)
        found[str(gpus)] = {
            "seconds": round(seconds, 1),
            "efficiency": round(alone / (seconds * gpus), 3),
        }
    return found


def main() -> int:
    """Measure, simulate, print, and write with --json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    times, wrote = measured_times(), writer(given.rows)
    slowest = 1 / min(wrote["rows_a_second"].values())
    unkept = 1 / wrote["jobs_a_second"]
    loads = {
        "grid of 40 cells": ("cell", 40, unkept),
        "100 grids of 40 cells": ("cell", 4000, unkept),
        "book of 12 operations, 64 drafts each": ("verdict", 12 * 64, slowest),
        "book of 118 operations, 64 drafts each": ("verdict", 118 * 64, slowest),
    }
    found = {
        "schema": SCHEMA,
        "task_seconds": {name: round(statistics.median(some), 2) for name, some in times.items()},
        "writer": wrote,
        "bends_at": {
            name: round(statistics.median(some) / slowest) for name, some in times.items()
        },
        "loads": {
            name: scaling(times[kind], count, driver)
            for name, (kind, count, driver) in loads.items()
        },
        "machine": {"cores": os.cpu_count(), "python": sys.version.split()[0]},
    }
    print(json.dumps(found, indent=2))
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
