"""Functions as people write them: is each in scope, how many drafts are right, how soon is there a
verified kernel.

    python bench/own_functions.py --json FILE [--only NAME ...] [--operations 12] [--again]
                                  [--jobs N] [--seconds LIMIT]

For every function of `bench/functions` it runs `kmint mint --reference FILE:FUNCTION --input ...`
with the embedded smith, 8 drafts and seed 1. Each command is a new process with a separate home.
The drafts come first and do not know the template's kernel. So one run shows both the smith's own
result and the user's. Between the functions it mints operations of the catalogue, to compare the
times. FILE keeps finished rows, which run again only with `--again`.

Times are seconds from the start of the command. Processor seconds count the command and all its
processes, and say more where other work keeps the machine busy. `--jobs N` runs N commands side by
side, each on two separate processors. The times are then those of a machine with two processors.

Exit code 1 when a goal of GOALS is missed, 3 when LIMIT ended the run before the last row.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.first_kernel import START, commit  # noqa: E402
from bench.functions.cases import CASES  # noqa: E402
from kmint_tui.minting.request import environment  # noqa: E402
from referee.ops import catalogue  # noqa: E402

SCHEMA = "kmint.bench.own_functions/1"
GOALS = {"functions": 0.95, "drafts": 0.85, "with_template": 1.0}
MOST_SLOWER = 2.0
PROCESSORS = 2
"""Number of separate processors of each command if several run at once."""
PASSED = ("correct", "win", "tie", "loss", "unsure")


def minted(words: list[str], seed: int, drafts: int) -> dict[str, Any]:
    """One `kmint mint` in a separate home: drafts, verdicts and times."""
    with tempfile.TemporaryDirectory() as home:
        mint = ["mint", *words, "--drafts", str(drafts), "--seed", str(seed), "--jsonl"]
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", START, *mint, "--model", "embedded"],
            cwd=ROOT,
            env={**os.environ, "KMINT_HOME": home},
            stdout=subprocess.PIPE,
            stderr=(log := tempfile.TemporaryFile("w+")),
            text=True,
        )
        assert process.stdout is not None
        events = [(time.perf_counter() - began, json.loads(line)) for line in process.stdout]
        _, status, usage = os.wait4(process.pid, 0)
        code = process.returncode = os.waitstatus_to_exitcode(status)
        with log:
            log.seek(0)
            said = log.read()
    result = next((event["result"] for _, event in events if event["event"] == "done"), None)
    if result is None:
        return {"scope": False, "code": code, "reason": said.strip()}
    first = next((at for at, event in events if _is_right_draft(event, drafts)), None)
    times = {
        "first": first and round(first, 2),
        "processor": round(usage.ru_utime + usage.ru_stime, 2),
    }
    return {"scope": True, "code": code, **_drafted(result), **times}


def _is_right_draft(event: dict[str, Any], drafts: int) -> bool:
    return (
        event["event"] == "verdict"
        and event["index"] < drafts
        and event["verdict"]["verdict"] in PASSED
    )


def _drafted(result: dict[str, Any]) -> dict[str, Any]:
    """How many drafts were right, what the template's kernel came to, and why others fell."""
    drafts = {draft["index"]: draft for draft in result["drafts"]}

    def verdict(index: int) -> dict[str, Any]:
        same = drafts[index]["duplicate_of"]
        found: dict[str, Any] | None = drafts[index if same is None else same]["verdict"]
        return found or {"verdict": "none", "stage": "none", "reason": drafts[index]["finish"]}

    own = [index for index in drafts if drafts[index]["author"] == "smith"]
    template = [index for index in drafts if drafts[index]["author"] == "template"]
    wrong = [verdict(index) for index in own if verdict(index)["verdict"] not in PASSED]
    return {
        "drafts": len(own),
        "right": len(own) - len(wrong),
        "template": all(verdict(index)["verdict"] in PASSED for index in template),
        "tokens": round(statistics.mean(drafts[index]["tokens"] for index in own), 1),
        "seconds": result["seconds"],
        "reasons": [f"{one['stage']}: {one['reason']}" for one in wrong]
        + [f"template: {verdict(one)['reason']}" for one in template
           if verdict(one)["verdict"] not in PASSED],
    }  # fmt: skip


def commands(operations: int) -> Iterator[tuple[str, list[str]]]:
    """Every function's row name and options, with operations of the catalogue spread among them."""
    functions = [
        (f"{group}:{name}", group, inputs)
        for group, cases in CASES.items()
        for name, inputs in cases.items()
    ]
    known = catalogue()
    chosen = [known[place * len(known) // operations].name for place in range(operations)]
    every = len(functions) / max(operations, 1)
    for place, (name, group, inputs) in enumerate(functions):
        while chosen and place >= (operations - len(chosen)) * every:
            operation = chosen.pop(0)
            yield operation, [operation]
        file = f"bench/functions/{group}.py:{name.partition(':')[2]}"
        yield name, ["--reference", file, "--input", inputs]


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The shares that GOALS asks for, and the times of functions against operations."""
    own = [row for row in rows if ":" in row["name"]]
    scope = [row for row in own if row["scope"]]
    drafts = sum(row["drafts"] for row in scope)
    figures: dict[str, Any] = {
        "count": len(own),
        "in_scope": len(scope),
        "functions": _share(sum(row["right"] > 0 for row in scope), len(own)),
        "drafts": _share(sum(row["right"] for row in scope), drafts),
        "with_template": _share(
            sum(row["right"] > 0 or row["template"] for row in scope), len(scope)
        ),
        "template": _share(sum(row["template"] for row in scope), len(scope)),
    }
    for label, part in (("own", scope), ("catalogue", [row for row in rows if row not in own])):
        for key, figure in (("first", "seconds"), ("processor", "processor_seconds")):
            times = [row[key] for row in part if row.get(key)]
            figures[f"{label}_{figure}"] = round(statistics.median(times), 2) if times else None
    both = figures["own_seconds"], figures["catalogue_seconds"]
    figures["slower"] = round(both[0] / both[1], 2) if all(both) else None
    return figures


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def show(rows: list[dict[str, Any]]) -> None:
    """A line a function."""
    for row in rows:
        if not row["scope"]:
            print(f"{row['name']:34} out of scope: {row['reason'].splitlines()[-1][:90]}")
            continue
        why = row["reasons"][0][:80] if row["reasons"] else ""
        right, template = f"{row['right']}/{row['drafts']}", "+" if row["template"] else "-"
        first = f"{row['first']:6.1f} s" if row["first"] else "   none"
        print(f"{row['name']:34} {right} template {template} {first}  {why}")


class Places:
    """Disjoint sets of processors; a command has one while it runs. With one job it has all."""

    def __init__(self, jobs: int) -> None:
        """Raises SystemExit where the machine has too few processors for the jobs."""
        processors = sorted(os.sched_getaffinity(0))
        self.size = PROCESSORS if jobs > 1 else len(processors)
        if jobs * self.size > len(processors):
            raise SystemExit(
                f"{jobs} jobs need {jobs * self.size} processors; {len(processors)} are here"
            )
        self._free: SimpleQueue[set[int]] = SimpleQueue()
        for place in range(jobs):
            self._free.put(set(processors[place * self.size : (place + 1) * self.size]))

    def run(self, name: str, words: list[str], seed: int, drafts: int) -> dict[str, Any]:
        """The row of one command. Its processes inherit the processors of the calling thread."""
        place = self._free.get()
        try:
            os.sched_setaffinity(0, place)
            return {
                "name": name,
                **minted(words, seed, drafts),
                "load": round(os.getloadavg()[0], 1),
                "commit": commit(ROOT),
            }
        finally:
            self._free.put(place)


def main() -> int:
    """Runs the missing functions, keeps every row, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--only", nargs="*", help="only these functions or operations")
    parser.add_argument("--again", action="store_true", help="run rows again that are there")
    parser.add_argument("--operations", type=int, default=12, help="how many to compare with")
    parser.add_argument("--drafts", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="commands side by side")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin none after this")
    asked = parser.parse_args()
    places, began = Places(asked.jobs), time.monotonic()
    document = json.loads(asked.json.read_text()) if asked.json.exists() else {"rows": []}
    rows = {row["name"]: row for row in document["rows"]}
    listed = dict(commands(asked.operations))
    missing = [
        name
        for name in listed
        if (not asked.only or name in asked.only or name.partition(":")[2] in asked.only)
        and (name not in rows or asked.again)
    ]

    def run(name: str) -> dict[str, Any] | None:
        if time.monotonic() - began > asked.seconds:
            return None
        return places.run(name, listed[name], asked.seed, asked.drafts)

    about = {
        "schema": SCHEMA,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit(ROOT),
        "drafts": asked.drafts,
        "seed": asked.seed,
        "cores": places.size,
        "jobs": asked.jobs,
        "environment": environment(),
    }
    left = 0
    with ThreadPoolExecutor(asked.jobs) as pool:
        for done in as_completed([pool.submit(run, name) for name in missing]):
            row = done.result()
            if row is None:
                left += 1
                continue
            rows[row["name"]] = row
            ordered = sorted(
                rows.values(),
                key=lambda one: [*listed].index(one["name"]) if one["name"] in listed else -1,
            )
            document = {**about, "rows": ordered, "summary": summary(ordered)}
            asked.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            show([row])
            sys.stdout.flush()
    show([*rows.values()])
    figures = summary([*rows.values()])
    print(json.dumps(figures))
    if left:
        print(f"{left} rows were not begun")
        return 3
    missed = [name for name, goal in GOALS.items() if (figures[name] or 0.0) < goal]
    if (figures["slower"] or 0.0) > MOST_SLOWER:
        missed.append("slower")
    print(f"missed: {', '.join(missed)}" if missed else "every goal is met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
