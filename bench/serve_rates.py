"""How fast a session answers: one right kernel, judged warm through the session's socket.

    python bench/serve_rates.py [--ops OP ...] [--verdicts 40] [--clients 1] [--level correct]
    [--json FILE]

The script starts `kmint serve` in a separate folder and has every op judged once to warm it. Then
`--clients` clients request `--verdicts` verdicts together. It prints:

- the median and the 90th percentile as a client sees them;
- each stage's median share inside the referee;
- memory, descriptors and children of the session's process before and after.

Exit code 0 when no verdict failed, and one client's `correct` verdicts have a median under 1.0 s.
The promise holds on a machine without other work.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from bench.judge_catalogue import candidates, processor, stages
from kmint_tui.service.client import session
from referee.verdict import Verdict

SCHEMA = "kmint.bench.serve_rates/1"
PROMISED_SECONDS = 1.0


def held(pid: int) -> dict[str, int]:
    """A process's resident KiB, its open descriptors, and its children."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    resident = next(
        int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")
    )
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    return {
        "resident_kib": resident,
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "children": len(children),
    }


def judged(pairs: list[tuple[str, str]], level: Any) -> list[tuple[Verdict, float]]:
    """One client's verdicts and the seconds that each took."""
    found = []
    with session() as opened:
        for name, source in pairs:
            start = time.perf_counter()
            verdict = opened.judge(source, name, level=level)
            found.append((verdict, time.perf_counter() - start))
    return found


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", nargs="*", default=["softmax", "rmsnorm", "layernorm"])
    parser.add_argument("--verdicts", type=int, default=40)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument(
        "--level", default="correct", choices=("screen", "compile", "correct", "full")
    )
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["KMINT_HOME"] = home
        server = subprocess.Popen(
            [sys.executable, "-m", "kmint_tui", "serve"], stderr=subprocess.PIPE, text=True
        )
        assert server.stderr is not None
        print(server.stderr.readline().strip(), flush=True)
        try:
            document = measured(given, server.pid)
        finally:
            server.terminate()
            server.wait()
    print(
        json.dumps(
            {name: value for name, value in document.items() if name != "environment"}, indent=1
        )
    )
    if given.json:
        given.json.write_text(json.dumps(document, indent=1, default=str) + "\n", encoding="utf-8")
    good = not document["fallen"] and (
        given.level != "correct"
        or given.clients > 1
        or document["median_seconds"] < PROMISED_SECONDS
    )
    return 0 if good else 1


def measured(given: argparse.Namespace, pid: int) -> dict[str, Any]:
    """The figures of one session."""
    kernels = candidates(given.ops, 0)
    start = time.perf_counter()
    judged(kernels, given.level)
    warming, before = time.perf_counter() - start, held(pid)
    many = [kernels[number % len(kernels)] for number in range(given.verdicts)]
    load, start = os.getloadavg(), time.perf_counter()
    with ThreadPoolExecutor(given.clients) as pool:
        shares = pool.map(
            judged,
            (many[first :: given.clients] for first in range(given.clients)),
            [given.level] * given.clients,
        )
        found = [one for share in shares for one in share]
    seconds = time.perf_counter() - start
    spent, verdicts = [one for _, one in found], [verdict for verdict, _ in found]
    return {
        "schema": SCHEMA,
        "level": given.level,
        "ops": given.ops,
        "clients": given.clients,
        "verdicts": dict(Counter(verdict.verdict for verdict in verdicts)),
        "fallen": [
            f"{verdict.op}: {verdict.reason}" for verdict in verdicts if not verdict.survived
        ],
        "warming_seconds": warming,
        "median_seconds": float(np.median(spent)),
        "p90_seconds": float(np.quantile(spent, 0.9)),
        "per_minute": 60 * len(found) / seconds,
        "stages": stages(verdicts),
        "held": {"before": before, "after": held(pid)},
        "load_average": load,
        "processor": processor(),
        "environment": {
            name: value for name, value in verdicts[0].environment.items() if name != "executable"
        },
    }


if __name__ == "__main__":
    sys.exit(main())
