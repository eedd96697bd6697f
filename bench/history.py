"""Time of `kmint history` over 10,000 drafts, start of the process included.

python -m bench.history [--drafts 10000] [--runs 15] [--json FILE]
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
import time
from dataclasses import replace
from pathlib import Path

from kmint_tui.history.records import NewDraft, NewSession
from kmint_tui.history.store import History

SESSION = NewSession(
    op="softmax",
    model="embedded",
    model_file="m.gguf",
    model_sha256="ab" * 32,
    system="system " * 300,
    user="user " * 300,
    seed=7,
    wanted=8,
    settings={"temperature": 0.7},
    environment={},
)
CHECKS = [
    {"name": f"check_{number}", "status": "pass", "detail": "as it should be"}
    for number in range(20)
]
CELLS = [
    {"name": f"cell_{number}", "status": "pass", "error": 1e-6, "budget": 1e-5}
    for number in range(25)
]


def fill(path: Path, drafts: int) -> None:
    """Sessions of eight judged drafts each."""
    verdict = {
        "schema": "kmint.verdict/1",
        "verdict": "correct",
        "reason": "agrees",
        "checks": CHECKS,
        "cells": CELLS,
    }
    with History(path) as history:
        for session in range(drafts // SESSION.wanted):
            number = history.begin(replace(SESSION, seed=session))
            for index in range(SESSION.wanted):
                source = (
                    f"# {session}.{index}\n" + "    x = tl.load(x_ptr + offsets, mask=mask)\n" * 40
                )
                history.add_draft(
                    number,
                    NewDraft(
                        number=index,
                        source=source,
                        seed=index,
                        temperature=0.7,
                        tokens=500,
                        seconds=3.0,
                        finish="stop",
                    ),
                )
                history.set_verdict(number, index, verdict, ratio=None)
            history.finish(number, "done")


def main() -> int:
    """Print the median; with --json also write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drafts", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "KMINT_HOME": home}
        where = [sys.executable, "-m", "kmint_tui", "path", "history"]
        file = Path(
            subprocess.run(
                where, env=environment, capture_output=True, text=True, check=True
            ).stdout.strip()
        )
        fill(file, given.drafts)
        times = []
        for _ in range(given.runs):
            started = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "kmint_tui", "history"],
                env=environment,
                capture_output=True,
                check=True,
            )
            times.append(1000 * (time.perf_counter() - started))
    found = {
        "drafts": given.drafts,
        "runs": given.runs,
        "median_ms": round(statistics.median(times), 1),
        "worst_ms": round(max(times), 1),
    }
    print(json.dumps(found))
    if given.json:
        machine = {
            "machine": platform.machine(),
            "processors": os.cpu_count(),
            "python": platform.python_version(),
        }
        given.json.write_text(json.dumps({**found, **machine}, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
