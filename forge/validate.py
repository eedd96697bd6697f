"""Pass every distinct corpus kernel through a judge, in parallel and resumably: `python -m forge.validate RESULTS.jsonl`.

`--level quick` runs Triton's interpreter in the worker (a first look); `--level referee` asks our own referee for the verdict
`correct`. One JSON line a kernel: hash of its canonical form, op, structure, level, result, reason, seconds. Kernels
already in the file at that level are not judged again. `--write-passed FILE.gz` lists the hashes that passed.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forge.corpus import op_designs
from forge.grammar import canonical_hash, write_fixed
from forge.ops import synthetic, training
from forge.passed import write_passed
from forge.workers import results
from referee.ops import Op, get


@dataclass(frozen=True)
class Job:
    """One kernel to judge."""

    hash: str
    op: Op
    structure: str
    source: str


def jobs(names: tuple[str, ...] = ()) -> Iterator[Job]:
    """Every distinct kernel of the corpus, or of the named ops (which may be held out)."""
    made = {op.name: op for op in synthetic()}
    seen: set[str] = set()
    for op in [made.get(name) or get(name) for name in names] or training():
        for design in op_designs(op):
            source = write_fixed(op, design)
            digest = canonical_hash(source)
            if digest not in seen:
                seen.add(digest)
                yield Job(digest, op, design.structure, source)


def judge_quick(job: Job) -> str:
    """The reason the kernel falls, or nothing."""
    from forge.quickcheck import quick_check

    return quick_check(job.op, job.source)


_REFEREE: Any = None


def judge_referee(job: Job) -> str:
    """The referee's reason, or nothing."""
    global _REFEREE
    from forge.ops import task
    from referee.judge import Referee

    if _REFEREE is None:
        _REFEREE = Referee().__enter__()
    verdict = _REFEREE.judge(job.source, task(job.op), level="correct")
    return "" if verdict.passed else f"{verdict.stage}/{verdict.guard}: {verdict.reason}"


def _work(argument: tuple[Job, str]) -> dict[str, Any]:
    job, level = argument
    started = time.perf_counter()
    reason = judge_referee(job) if level == "referee" else judge_quick(job)
    return {
        "hash": job.hash,
        "op": job.op.name,
        "structure": job.structure,
        "level": level,
        "passed": not reason,
        "reason": reason,
        "seconds": round(time.perf_counter() - started, 3),
    }


def read_results(path: Path) -> list[dict[str, Any]]:
    """The lines of a results file, a torn last line left out."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="judge every distinct corpus kernel")
    parser.add_argument("results", type=Path)
    parser.add_argument("--level", choices=("quick", "referee"), default="referee")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--ops", nargs="*", default=[], help="only these ops; held-out ones allowed")
    parser.add_argument("--every", type=int, default=1, help="only every n-th kernel")
    parser.add_argument("--write-passed", type=Path)
    arguments = parser.parse_args()
    os.environ["TRITON_INTERPRET"] = "1" if arguments.level == "quick" else os.environ.get("TRITON_INTERPRET", "0")
    known = {(entry["hash"], entry["level"]) for entry in read_results(arguments.results)}
    todo = [job for job in jobs(tuple(arguments.ops)) if (job.hash, arguments.level) not in known][:: arguments.every]
    print(f"{len(todo)} kernels to judge, {len(known)} known", flush=True)
    started = time.perf_counter()
    with arguments.results.open("a", encoding="utf-8") as file:
        for count, entry in enumerate(results(_work, [(job, arguments.level) for job in todo], arguments.processes), 1):
            file.write(json.dumps(entry) + "\n")
            file.flush()
            if not entry["passed"]:
                print(entry["op"], entry["structure"], entry["reason"], flush=True)
            if count % 200 == 0:
                print(f"{count}/{len(todo)} {time.perf_counter() - started:.0f} s", flush=True)
    if arguments.write_passed:
        print(write_passed(read_results(arguments.results), arguments.level, arguments.write_passed), "passed")


if __name__ == "__main__":
    main()
