"""Times of the quick commands from start to end: the median of N new processes each.

    python bench/startup.py [--starts 31] [--json FILE]

`kmint --help` and `kmint models ls` have targets (200 and 400 ms on two cores); the table shows the
others next to them. The store holds one model, whose head is read. Exit code 1 when a target is
missed. A test checks which modules may be loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata, resources
from pathlib import Path

TARGETS = {("--help",): 0.2, ("models", "ls"): 0.4}
OTHERS = (("--version",), ("ops",), ("history",), ("path",), ("models", "show", "embedded"))
START = "import sys; from kmint_tui.cli.main import main; sys.exit(main())"


def seconds(arguments: tuple[str, ...], environment: dict[str, str]) -> float:
    """One start, as the installed console script does it."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", START, *arguments], env=environment, check=True, capture_output=True
    )
    return time.perf_counter() - began


def measure(starts: int, home: Path) -> dict[str, list[float]]:
    """All commands in turn, `starts` times, after one warm-up; so that other work on the machine
    meets them alike.
    """
    environment = {**os.environ, "KMINT_HOME": str(home)}
    (embedded,) = (Path(str(resources.files("kmint_tui"))) / "smith" / "embedded").glob("*.gguf")
    store = home / "data" / "models" / "minicpm5-1b"
    store.mkdir(parents=True)
    shutil.copy(embedded, store / "model-Q8_0.gguf")
    commands = (*TARGETS, *OTHERS)
    found: dict[str, list[float]] = {" ".join(command): [] for command in commands}
    for turn in range(starts + 1):
        for command in commands:
            time_taken = seconds(command, environment)
            if turn:
                found[" ".join(command)].append(time_taken)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Time of kmint's quick commands.")
    parser.add_argument("--starts", type=int, default=31)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        times = measure(options.starts, Path(folder))
    medians = {name: statistics.median(values) for name, values in times.items()}
    targets = {" ".join(command): target for command, target in TARGETS.items()}
    for name, median in medians.items():
        target = targets.get(name)
        said = (
            ""
            if target is None
            else f", target {1000 * target:.0f} ms: {'met' if median < target else 'MISSED'}"
        )
        words = {"median": median, "best": min(times[name]), "worst": max(times[name])}
        shown = [f"{word} {1000 * value:4.0f} ms" for word, value in words.items()]
        print(f"kmint {name:22} {', '.join(shown)}{said}")
    machine = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "click": metadata.version("click"),
    }
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    print(
        f"{options.starts} starts each, {cores} cores, load {load:.1f}, Python {machine['python']}, click {machine['click']}"
    )
    if options.json:
        record = {"schema": "kmint.bench.startup/1", "cores": cores, "load": load, **machine}
        options.json.write_text(
            json.dumps({**record, "medians": medians, "targets": targets, "times": times}, indent=1)
            + "\n"
        )
    return 0 if all(medians[name] < target for name, target in targets.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
