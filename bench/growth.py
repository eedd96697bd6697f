"""Many judgements in a row by one referee: do memory, open files, processes or temporary files
grow?

    python bench/growth.py [--judgements 60] [--threads 2] [--every 12] [--gpu] [--json FILE]

The script judges the same right kernels, wrong kernels and cheats again and again. After every
`--every` judgements, when no job runs, it counts all processes of the referee. The first count
follows the first batch, which loads and caches the code that later ones need. Memory is the sum of
the proportional set sizes (PSS).

Exit code 0 when every verdict is right and nothing grew from the first count to the last. Open
files, processes, threads and temporary files may not grow at all, memory by at most GROWTH.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.kill_judge import descendants, known, role
from referee.judge import Referee
from referee.selftest.corpus import ACCEPTED, Specimen
from referee.verdict import Mode

SCHEMA = "kmint.bench.growth/1"
GROWTH = 0.05
"""A part of the memory: allocators give back a little less or more after every batch."""
SETTLE_SECONDS = 60.0
NAMES = (
    *(
        "flat_silu",
        "row_rmsnorm",
        "autotuned_rmsnorm_relu6",
        "atomic_l2norm",
        "softmax_no_max",
        "swiglu_swapped",
    ),
    *(
        "silu_no_factor",
        "layernorm_no_mean",
        "059_input_zeroed",
        "080_library_call",
        "062_zeros_under_tolerance",
        "042_identity_memo",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Count:
    """The resources after `judgements` judgements, of this process and all processes below it."""

    judgements: int
    memory_mib: float
    own_memory_mib: float
    files: int
    own_files: int
    processes: int
    threads: int
    temporary: int


def run(
    specimens: tuple[Specimen, ...],
    judgements: int,
    every: int,
    threads: int,
    mode: Mode,
    temporary: Path,
) -> tuple[list[Count], list[str]]:
    """The counts, and the verdicts that were not as expected."""
    counts: list[Count] = []
    wrong: list[str] = []
    with Referee(mode=mode, cache=temporary.parent / "cache") as referee:

        def judge(number: int) -> None:
            one = specimens[number % len(specimens)]
            verdict = referee.judge(one.source, one.op, level="correct")
            guard = ACCEPTED if verdict.passed else verdict.guard or verdict.verdict
            if guard not in one.expected(verdict.mode):
                wrong.append(f"{one.name}: {guard}: {verdict.reason}")

        for first in range(0, judgements, every):
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(judge, range(first, min(first + every, judgements))))
            _settle()
            counts.append(count(min(first + every, judgements), temporary))
            print(_line(counts[-1]), flush=True)
    return counts, wrong


def _settle() -> None:
    """Wait until no job is left: the end of one is noticed a moment after its verdict."""
    until = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < until and any(role(pid) in ("job", "tool") for pid in descendants()):
        time.sleep(0.1)


def count(judgements: int, temporary: Path) -> Count:
    """Look at this process and all below it."""
    below = descendants()
    everyone = [os.getpid(), *below]
    return Count(
        judgements=judgements,
        memory_mib=round(sum(map(_proportional, everyone)) / 2**20, 1),
        own_memory_mib=round(_proportional(os.getpid()) / 2**20, 1),
        files=sum(_entries(Path(f"/proc/{pid}/fd")) for pid in everyone),
        own_files=_entries(Path("/proc/self/fd")),
        processes=len(below),
        threads=sum(_entries(Path(f"/proc/{pid}/task")) for pid in everyone),
        temporary=sum(1 for _ in temporary.rglob("*")),
    )


def _proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def _entries(folder: Path) -> int:
    try:
        return len(os.listdir(folder))
    except OSError:
        return 0


def grown(counts: list[Count]) -> list[str]:
    """The figures that the last count has more of than the first."""
    first, last = counts[0], counts[-1]
    found = [
        f"{name}: {getattr(first, name)} -> {getattr(last, name)}"
        for name in ("files", "own_files", "processes", "threads", "temporary")
        if getattr(last, name) > getattr(first, name)
    ]
    if last.memory_mib > first.memory_mib * (1 + GROWTH):
        found.append(f"memory_mib: {first.memory_mib} -> {last.memory_mib}")
    return found


def _line(one: Count) -> str:
    return "  ".join(f"{getattr(one, field.name):>15}" for field in fields(Count))


def main() -> int:
    """Judge, print the table, and write the record."""
    parser = argparse.ArgumentParser(
        description="Do memory, files, processes or temporary files grow with judgements?"
    )
    parser.add_argument("--judgements", type=int, default=60)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--every", type=int, default=len(NAMES))
    parser.add_argument("--gpu", action="store_true", help="replay on the GPU")
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    mode: Mode = "replay" if given.gpu else "interpret"
    with tempfile.TemporaryDirectory(prefix="kmint-growth-") as folder:
        temporary = Path(folder) / "tmp"
        temporary.mkdir()
        # The folder of this process and of all processes that it starts.
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
        print("  ".join(f"{field.name:>15}" for field in fields(Count)))
        started = time.monotonic()
        counts, wrong = run(
            known(NAMES), given.judgements, given.every, given.threads, mode, temporary
        )
        seconds = round(time.monotonic() - started, 1)
    more = grown(counts)
    for line in (*wrong, *(f"grew: {one}" for one in more)):
        print(line)
    holds = len(counts) > 1 and not more and not wrong
    print(
        f"{given.judgements} judgements in {seconds} s: {'nothing grew' if holds else 'DOES NOT HOLD'}"
    )
    if given.json:
        document = {
            "schema": SCHEMA, "mode": mode, "judgements": given.judgements, "threads": given.threads, "seconds": seconds,
            "holds": holds, "grown": more, "wrong": wrong, "counts": [asdict(one) for one in counts],
            "machine": {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version()},
        }  # fmt: skip
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
