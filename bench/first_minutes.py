"""The first minutes of a new user, before and now: the build of llama.cpp, the longest part of the
install, and the first mint.

    python bench/first_minutes.py --against CHECKOUT [--rounds 3] [--json FILE]

CHECKOUT holds an earlier commit, with its environment in `.venv`. Each build of llama-cpp-python
starts from the source archive, without any cache, in a temporary folder: once as README said at
first, once with `kmint_tui/smith/llama.cmake`. The mints of both checkouts take turns. Seconds by
the clock depend on other work on the machine; processor seconds hardly do. The machine's load is
noted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.first_kernel import VERSIONED, Run, at_once, commit, median  # noqa: E402

SCHEMA = "kmint.bench.first_minutes/1"
WANTED = "llama-cpp-python==0.3.36"
MINT = ["softmax", "--drafts", "8", "--seed", "1"]
CMAKE_ARGS = {
    "before": "-DLLAVA_BUILD=OFF",
    "now": f"-DCMAKE_PROJECT_INCLUDE={ROOT / 'kmint_tui' / 'smith' / 'llama.cmake'}",
}


def build(arguments: str) -> dict[str, float]:
    """One build with these CMAKE_ARGS: its seconds by the clock and of the processors, and the load
    before it.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "CMAKE_ARGS": arguments, "TMPDIR": folder}
        pip = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-cache-dir",
            "--no-binary",
            "llama-cpp-python",
        ]
        load, began = os.getloadavg()[0], time.perf_counter()
        process = subprocess.Popen([*pip, "--wheel-dir", folder, WANTED], env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"the build with {arguments} failed")
    seconds = time.perf_counter() - began
    return {
        "seconds": round(seconds, 1),
        "processor": round(usage.ru_utime + usage.ru_stime, 1),
        "load": round(load, 1),
    }


def mint(checkouts: dict[str, Path], rounds: int) -> dict[str, dict[str, float | None]]:
    """The medians of a mint alone in each checkout, and of two mints at once in the newest, which
    is the last one.
    """
    runs: dict[str, list[Run]] = {name: [] for name in (*checkouts, "two at once")}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for name, checkout in checkouts.items():
                runs[name] += at_once(1, MINT, Path(folder), checkout)
            runs["two at once"] += at_once(2, MINT, Path(folder), checkout)
    for name, found in runs.items():
        print(name, *(asdict(one) for one in found), sep="\n  ", flush=True)
    fields = ("first_draft", "first_kernel_after_draft", "total", "processor")
    return {name: {field: median(found, field) for field in fields} for name, found in runs.items()}


def main() -> None:
    """Build and mint, print the figures, and write JSON when asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    mints = mint({"before": options.against, "now": ROOT}, options.rounds)
    builds = {}
    for name, arguments in CMAKE_ARGS.items():
        builds[name] = build(arguments)
        print(f"build {name}: {builds[name]}", flush=True)
    if options.json:
        record = {
            "schema": SCHEMA,
            "commit": commit(ROOT),
            "before": commit(options.against),
            "versions": {
                "python": platform.python_version(),
                **{name: metadata.version(name) for name in VERSIONED},
            },
            "cores": len(os.sched_getaffinity(0)),
            "load": round(load, 1),
            "builds": builds,
            "mints": mints,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
