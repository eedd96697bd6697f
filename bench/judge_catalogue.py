"""Times of full verdicts and their number in a minute: one right kernel for every op of the
catalogue, judged warm.

    python bench/judge_catalogue.py [--ops OP ...] [--sustained 200] [--threads N] [--level full]
                                    [--builders 8] [--json FILE]

    python bench/judge_catalogue.py --cache DIR --only singles
    python bench/judge_catalogue.py --cache DIR --only sustained

Kernels are those of kmint's template. The script builds the baselines first and shows their cost
apart. It prints each stage's share of the verdicts judged one after the other, then the rate when
many are judged at once. Use `--level full` on a GPU; `correct` works on every machine.

Several builders compile and autotune baselines side by side on one GPU, which disturbs the
autotuner. The ratios of such a run say how fast verdicts are made, and are no evidence for a
kernel.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import random
import sys
import tempfile
import time
import timeit
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from forge.choices import draw
from kmint_tui.graph.operations import program_of
from kmint_tui.template.structures import kernel_source
from kmint_tui.template.write import program_source
from referee import ops
from referee.candidate import Level
from referee.gpu.replayer import Replayer
from referee.judge import Referee
from referee.verdict import Verdict

SCHEMA = "kmint.bench.judge_catalogue/1"


def candidates(names: Sequence[str], variant: int) -> list[tuple[str, str]]:
    """One kernel of kmint's template for each op.

    Variant 0 has the usual structures; each further one draws a structure of the main stage.
    """
    found = []
    for name in names:
        program = program_of(ops.get(name), name)
        main, drawn = program.stages[program.main], {}
        if variant:
            drawn = {program.main: kernel_source(main, *draw(main, random.Random(variant)))}
        found.append((name, program_source(program, drawn)))
    return found


def line(name: str, verdict: Verdict, seconds: float) -> str:
    """One verdict as a row of the table."""
    timing = verdict.timing
    shown = f"{verdict.verdict:9s}"
    if timing and timing["ratio"]:
        device = timing["device"]
        others = " ".join(
            f"{key} {value['median']:.1f}" for key, value in device.items() if key != "candidate"
        )
        ratio = timing["ratio"]
        shown += f" {ratio['ratio']:6.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}] {timing['rounds']:4d} rounds"
        shown += f", {device['candidate']['median']:.1f} us; {others}"
    return f"{name:28s} {seconds:5.2f} s  {shown}" + (
        f"  {verdict.guard}: {verdict.reason}" if verdict.guard else ""
    )


def row(name: str, verdict: Verdict, seconds: float) -> dict[str, Any]:
    """The row of one verdict: the answer, the ratio to the fastest baseline, and the seconds of
    each stage.
    """
    timing = verdict.timing or {}
    device = {key: value["median"] for key, value in timing.get("device", {}).items()}
    return {
        "op": name, "seconds": seconds, "verdict": verdict.verdict, "guard": verdict.guard, "reason": verdict.reason,
        "stages": verdict.seconds, "ratio": timing.get("ratio"), "bar": timing.get("bar"), "device_us": device,
        "rounds": timing.get("rounds"), "timing_parts": timing.get("seconds"), "dropped": timing.get("dropped"),
    }  # fmt: skip


def stages(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """Median seconds of every stage."""
    names = dict.fromkeys(name for verdict in verdicts for name in verdict.seconds)
    return {
        name: float(np.median([verdict.seconds.get(name, 0.0) for verdict in verdicts]))
        for name in names
    }


def write(document: dict[str, Any], verdicts: Sequence[Verdict], file: Path | None) -> None:
    """Writes the results so far, with the environment of the first verdict."""
    if file and verdicts:
        environment = {
            key: value for key, value in verdicts[0].environment.items() if key != "executable"
        }
        file.write_text(
            json.dumps(document | {"environment": environment}, indent=1, default=str) + "\n",
            encoding="utf-8",
        )


def processor() -> dict[str, Any]:
    """The host's processor, and the seconds that a fixed amount of Python takes it, the best of
    five: hosts with the same GPU differ.
    """
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        "unknown",
    )
    text = "total = [first + second for first, second in pairs]\n" * 2000
    seconds = min(timeit.repeat(lambda: ast.parse(text), number=10, repeat=5))
    return {"model": model, "processors": os.cpu_count(), "parsing_seconds": seconds}


def build(names: Sequence[str], cache: Path, builders: int) -> None:
    """Compile the baselines of all ops into the cache, several at a time."""

    def work(share: Sequence[str]) -> None:
        with Referee(cache=cache) as referee:
            for name in share:
                referee.warm(name)

    with ThreadPoolExecutor(builders) as pool:
        list(pool.map(work, (names[first::builders] for first in range(builders))))


def main() -> int:
    """Print the tables; exit code 0 when the promises hold (on a GPU: 1.5 s at the median, 60 a
    minute).
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", nargs="*", default=None)
    parser.add_argument("--sustained", type=int, default=200)
    parser.add_argument("--threads", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--level", default="full", choices=("correct", "full"))
    parser.add_argument(
        "--builders",
        type=int,
        default=8,
        help="processes that build baselines first; 0 where the cache has them",
    )
    parser.add_argument(
        "--only",
        choices=("singles", "sustained"),
        help="the part in which verdicts are made one by one, or the other",
    )
    parser.add_argument(
        "--cache", type=Path, help="where built baselines are kept for the next run"
    )
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    names = given.ops or [op.name for op in ops.catalogue()]
    gpu = Replayer.available() is None
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "level": given.level,
        "processor": processor(),
        "verdicts": [],
        "sustained": None,
    }
    with (
        tempfile.TemporaryDirectory() as empty,
        Referee(cache=given.cache or Path(empty)) as referee,
    ):
        chosen = candidates(names, 0)
        start = time.perf_counter()
        if gpu and given.level == "full":
            if given.builders:
                build([name for name, _ in chosen], given.cache or Path(empty), given.builders)
            for name, _ in chosen:
                referee.warm(name)
        elif chosen:
            referee.judge(chosen[0][1], chosen[0][0], level=given.level)
        document["warming_seconds"] = time.perf_counter() - start
        print(f"baselines and workers warm after {document['warming_seconds']:.1f} s", flush=True)
        verdicts = []
        if given.only != "sustained":
            verdicts = one_by_one(referee, chosen, given.level, document, given.json)
        elif chosen:
            verdicts = [referee.judge(chosen[0][1], chosen[0][0], level=given.level)]
        if given.only != "singles":
            more = (pair for variant in itertools.count(1) for pair in candidates(names, variant))
            many = list(itertools.islice(more, given.sustained if chosen else 0))
            document["sustained"] = (
                many_at_once(referee, many, given.level, given.threads) if many else None
            )
    write(document, verdicts, given.json)
    median, sustained = document.get("median_seconds", 0.0), document["sustained"]
    return (
        0
        if not gpu or (median <= 1.5 and (sustained is None or sustained["per_minute"] >= 60))
        else 1
    )


def one_by_one(
    referee: Referee,
    chosen: Sequence[tuple[str, str]],
    level: Level,
    document: dict[str, Any],
    file: Path | None,
) -> list[Verdict]:
    """Judge one kernel after the other; the rows, the median and the stages go into `document`, and
    with every verdict into `file`.
    """
    verdicts, spent = [], []
    for name, source in chosen:
        start = time.perf_counter()
        verdicts.append(referee.judge(source, name, level=level))
        spent.append(time.perf_counter() - start)
        print(line(name, verdicts[-1], spent[-1]), flush=True)
        document["verdicts"].append(row(name, verdicts[-1], spent[-1]))
        document["median_seconds"], document["stages"] = float(np.median(spent)), stages(verdicts)
        # A run that is cut short then says how far it came.
        write(document, verdicts, file)
    print(
        "\nverdicts: "
        + ", ".join(
            f"{count} {kind}" for kind, count in Counter(v.verdict for v in verdicts).items()
        )
    )
    print(
        f"seconds a verdict: median {document['median_seconds']:.2f}, p90 {np.quantile(spent, 0.9):.2f}"
    )
    for name, seconds in document["stages"].items():
        print(f"  {name:12s} {seconds:6.3f} s")
    return verdicts


def many_at_once(
    referee: Referee, many: Sequence[tuple[str, str]], level: Level, threads: int
) -> dict[str, Any]:
    """Judge with several threads; the rate, the verdicts, and every candidate that was rejected,
    which none should be.
    """
    start, replayed = time.perf_counter(), replaying(referee)
    with ThreadPoolExecutor(threads) as pool:
        judged = list(pool.map(lambda pair: referee.judge(pair[1], pair[0], level=level), many))
    seconds = time.perf_counter() - start
    rate, share = 60 * len(many) / seconds, (replaying(referee) - replayed) / seconds
    kinds = dict(Counter(verdict.verdict for verdict in judged))
    fallen = [
        {"op": name, "guard": verdict.guard, "reason": verdict.reason, "source": source}
        for (name, source), verdict in zip(many, judged, strict=True)
        if verdict.verdict in ("rejected", "error")
    ]
    for item in fallen:
        print(f"{item['op']}: {item['guard']}: {item['reason']}")
    print(
        f"sustained: {rate:.1f} verdicts a minute over {len(many)}, {threads} threads: {kinds}; replaying {share:.0%} of the time"
    )
    return {
        "candidates": len(many), "threads": threads, "per_minute": rate, "replaying_share": share, "verdicts": kinds,
        "stages": stages(judged), "timing_parts": timing_parts(judged), "fallen": fallen,
    }  # fmt: skip


def replaying(referee: Referee) -> float:
    """Seconds that the process which replays and times has spent on requests so far."""
    return referee._replayer.seconds if referee._replayer else 0.0


def timing_parts(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """Mean seconds of every part of timing."""
    parts = [verdict.timing["seconds"] for verdict in verdicts if verdict.timing]
    return (
        {name: float(np.mean([each.get(name, 0.0) for each in parts])) for name in parts[0]}
        if parts
        else {}
    )


if __name__ == "__main__":
    sys.exit(main())
