"""Seconds until `kmint mint` shows its first correct kernel, and in all: alone, and two commands at
once.

    python bench/first_kernel.py [--op softmax] [--drafts 8] [--seed N] [--rounds 3] [--json FILE]

Every command is a new process with a separate home. Times are seconds by the clock, from the start
of the command or from the end of its first draft. Processor seconds count the command and every
process that it waited for. They say more where other work keeps the machine busy.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

SCHEMA = "kmint.bench.first_kernel/1"
ROOT = Path(__file__).resolve().parents[1]
START = "import sys; from kmint_tui.cli.main import main; sys.exit(main())"
VERSIONED = ("llama-cpp-python", "torch", "triton")
TARGETS = {"first_kernel_after_draft": 5.0, "total": 10.0}
MOST_SLOWDOWN = 2.3


@dataclass(frozen=True, kw_only=True)
class Run:
    """One command. Times in seconds; None where no draft, or no correct kernel, came."""

    first_draft: float | None
    first_kernel_after_draft: float | None
    total: float
    processor: float
    correct: int
    exit_code: int


def run(arguments: list[str], home: Path, checkout: Path) -> Run:
    """Start the command of a checkout, in its own environment if it has one, and note the time of
    every event.
    """
    environment = {**os.environ, "KMINT_HOME": str(home)}
    own = checkout / ".venv" / "bin" / "python"
    python = str(own) if own.exists() else sys.executable
    command = [python, "-c", START, "mint", *arguments, "--jsonl"]
    began = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=checkout, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    first_draft = first_kernel = None
    correct = 0
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        now = time.perf_counter() - began
        if event["event"] == "draft" and first_draft is None:
            first_draft = now
        if event["event"] == "verdict" and event["verdict"]["verdict"] in (
            "correct",
            "win",
            "tie",
            "loss",
            "unsure",
        ):
            correct += 1
            first_kernel = now if first_kernel is None else first_kernel
    _, status, usage = os.wait4(process.pid, 0)
    total = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    after = (
        None
        if first_kernel is None or first_draft is None
        else round(first_kernel - first_draft, 3)
    )
    return Run(
        first_draft=None if first_draft is None else round(first_draft, 3),
        first_kernel_after_draft=after,
        total=round(total, 3),
        processor=round(usage.ru_utime + usage.ru_stime, 2),
        correct=correct,
        exit_code=process.returncode,
    )


def at_once(count: int, arguments: list[str], folder: Path, checkout: Path) -> list[Run]:
    """This number of commands, started together."""
    found: list[Run] = []
    homes = [Path(tempfile.mkdtemp(dir=folder)) for _ in range(count)]
    threads = [
        threading.Thread(target=lambda home=home: found.append(run(arguments, home, checkout)))
        for home in homes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def median(runs: list[Run], name: str) -> float | None:
    """The median of one field over the runs that have it."""
    values = [value for one in runs if (value := getattr(one, name)) is not None]
    return round(statistics.median(values), 3) if values else None


def commit(checkout: Path) -> str:
    """The commit of a checkout, with a plus where files are changed; empty outside of one."""
    asked = (
        ["git", "rev-parse", "--short", "HEAD"],
        ["git", "status", "--porcelain", "--untracked-files=no"],
    )
    try:
        head, changed = (
            subprocess.run(
                one, cwd=checkout, capture_output=True, text=True, check=True
            ).stdout.strip()
            for one in asked
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{head}+" if changed else head


def main() -> int:
    """Measures, prints the medians, and writes JSON on request. Exit code 1 for a missed target."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--op", default="softmax")
    parser.add_argument("--drafts", type=int, default=8)
    parser.add_argument("--seed", type=int, default=2389331298)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    arguments = [options.op, "--drafts", str(options.drafts), "--seed", str(options.seed)]
    alone: list[Run] = []
    together: list[Run] = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            alone += at_once(1, arguments, Path(folder), ROOT)
            together += at_once(2, arguments, Path(folder), ROOT)
    fields = ("first_draft", "first_kernel_after_draft", "total", "processor")
    medians = {
        name: {field: median(runs, field) for field in fields}
        for name, runs in (("alone", alone), ("two at once", together))
    }
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    for name, found in medians.items():
        print(
            f"{name:12}",
            ", ".join(f"{field.replace('_', ' ')} {value} s" for field, value in found.items()),
        )
    slowdown = round(
        (medians["two at once"]["total"] or 0.0) / (medians["alone"]["total"] or 1.0), 2
    )
    print(
        f"two at once take {slowdown} times as long as one; {cores} cores, load {load:.1f} at the end"
    )
    missed = [
        field
        for field, target in TARGETS.items()
        if (medians["alone"][field] or target + 1) > target
    ]
    missed += ["two at once"] if slowdown > MOST_SLOWDOWN else []
    print(f"missed: {', '.join(missed)}" if missed else "every target is met")
    if options.json:
        record = {
            "schema": SCHEMA,
            "commit": commit(ROOT),
            "machine": platform.machine(),
            "python": platform.python_version(),
            "versions": {name: metadata.version(name) for name in VERSIONED},
            "cores": cores,
            "load": load,
            "arguments": arguments,
            "medians": medians,
            "slowdown": slowdown,
            "alone": [asdict(one) for one in alone],
            "two at once": [asdict(one) for one in together],
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
