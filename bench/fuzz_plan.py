"""Feeds a million mutated launch plans to the judge's parser: no crash, nothing out of range
accepted.

    python bench/fuzz_plan.py [--count 1000000] [--seed 0] [--processes N] [--json FILE]

The script prints a table; with --json it also writes FILE with the machine and versions.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHUNK = 5000

sys.path.insert(0, str(ROOT))

from tests.referee.plan.mutate import try_mutations  # noqa: E402


def main() -> int:
    """Run the fuzzer. Returns 1 when the parser crashed or accepted what it must not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    started = time.perf_counter()
    counts: Counter[str] = Counter()
    failures: list[str] = []
    chunks = [
        (options.seed + index, min(CHUNK, options.count - start))
        for index, start in enumerate(range(0, options.count, CHUNK))
    ]
    with ProcessPoolExecutor(options.processes) as pool:
        for (seed, _), future in [(chunk, pool.submit(try_mutations, *chunk)) for chunk in chunks]:
            try:
                counts.update(future.result())
            except Exception as error:
                failures.append(f"seed {seed}: {type(error).__name__}: {error}")
    seconds = time.perf_counter() - started
    tried = counts["accepted"] + counts["refused"]
    rows = {
        "mutated plans": tried,
        "refused": counts["refused"],
        "accepted": counts["accepted"],
        "accepted and different": counts["accepted_other"],
        "crashes or wrong acceptances": len(failures),
        "seconds": round(seconds, 1),
        "plans a second": round(tried / seconds),
    }
    for name, value in rows.items():
        print(f"{name:32}{value:>14,}")
    for failure in failures[:10]:
        print(failure, file=sys.stderr)
    if options.json:
        machine = {
            "python": platform.python_version(),
            "system": platform.platform(),
            "cores": os.cpu_count(),
        }
        document = {
            "schema": "kmint.bench.fuzz_plan/1",
            "seed": options.seed,
            "machine": machine,
            **rows,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
