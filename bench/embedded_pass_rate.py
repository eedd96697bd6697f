"""How often the embedded smith mints a correct kernel: `kmint mint OP --drafts 8 --seed 1` over every op of the catalogue.

    python bench/embedded_pass_rate.py [--json FILE] [--model ID|PATH] [--ops OP ...] [--remix]

Runs the command itself, so what is measured is what a user gets. Every finished op is kept in FILE at once and not run
again by the next call. Prints a table with held-out ops marked, then the failures by name; exit code 1 when fewer than
90 % of all ops, 90 % of the held-out ops or 80 % of the drafts are right.
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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from forge.ops import heldout
from referee.ops import catalogue

SCHEMA = "kmint.pass-rate/1"
PASSED = ("win", "tie", "loss", "unsure", "correct")
GOALS = {"ops": 0.9, "heldout": 0.9, "drafts": 0.8}


def mint(op: str, arguments: argparse.Namespace, home: Path) -> dict[str, Any]:
    """One op's row: drafts correct, reasons of the others."""
    command = [sys.executable, "-m", "kmint_tui", "mint", op, "--drafts", str(arguments.drafts), "--seed", str(arguments.seed), "--json"]
    command += ["--model", arguments.model]
    started = time.perf_counter()
    environment = {**os.environ, "KMINT_HOME": str(home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    seconds = round(time.perf_counter() - started, 2)
    if done.returncode not in (0, 1):
        return {"op": op, "drafts": 0, "correct": 0, "distinct": 0, "seconds": seconds, "error": done.stderr.strip()[-400:], "reasons": []}
    document = json.loads(done.stdout)
    verdicts = {draft["index"]: draft["verdict"] for draft in document["drafts"]}
    correct, reasons, distinct = 0, [], 0
    for draft in document["drafts"]:
        repeated = draft["duplicate_of"]
        verdict = verdicts[draft["index"] if repeated is None else repeated]
        passed = verdict is not None and verdict["verdict"] in PASSED
        correct += passed
        distinct += repeated is None
        if not passed:
            reasons.append(f"{verdict['stage']}/{verdict['guard']}: {verdict['reason']}" if verdict else f"not judged ({draft['finish']})")
    row = {"op": op, "drafts": len(verdicts), "correct": correct, "distinct": distinct, "seconds": seconds}
    return {**row, "error": "", "reasons": reasons}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Shares of ops and drafts, all and held out, catalogue ops apart from remixes."""
    listed = [row for row in rows if row["group"] == "catalogue"]
    out = [row for row in listed if row["heldout"]]
    remix = [row for row in rows if row["group"] == "remix"]

    def ops_share(part: list[dict[str, Any]]) -> float | None:
        return round(sum(row["correct"] > 0 for row in part) / len(part), 4) if part else None

    def drafts_share(part: list[dict[str, Any]]) -> float | None:
        drafts = sum(row["drafts"] for row in part)
        return round(sum(row["correct"] for row in part) / drafts, 4) if drafts else None

    return {
        "ops": ops_share(listed), "heldout": ops_share(out), "drafts": drafts_share(listed), "drafts_heldout": drafts_share(out),
        "remix": ops_share(remix), "drafts_remix": drafts_share(remix), "count": len(listed), "count_heldout": len(out),
        "failures": [row["op"] for row in rows if not row["correct"]],
    }


def show(rows: list[dict[str, Any]], figures: dict[str, Any]) -> None:
    """The table on stdout."""
    for row in rows:
        mark = "held out" if row["heldout"] else ""
        note = row["error"] or (row["reasons"][0][:90] if row["reasons"] else "")
        print(f"{row['op']:34} {row['correct']:>2}/{row['drafts']:<2} {row['seconds']:6.1f} s  {mark:9} {note}")
    for key in ("ops", "heldout", "drafts", "drafts_heldout", "remix", "drafts_remix"):
        if figures[key] is not None:
            print(f"{key:15} {100 * figures[key]:.1f} %")
    print("failures:", ", ".join(figures["failures"]) or "none")


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(description="pass rate of the embedded smith")
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "results" / "embedded_pass_rate.json")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--drafts", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ops", nargs="*", help="only these ops")
    parser.add_argument("--remix", action="store_true", help="also the held-out remix ops")
    arguments = parser.parse_args()
    out = {op.name for op in heldout()}
    wanted = [(op.name, "catalogue") for op in catalogue()]
    wanted += [(op.name, "remix") for op in heldout() if op.origin == "remix"] if arguments.remix else []
    wanted = [(name, group) for name, group in wanted if not arguments.ops or name in arguments.ops]
    document: dict[str, Any] = json.loads(arguments.json.read_text()) if arguments.json.exists() else {"rows": []}
    rows: dict[str, dict[str, Any]] = {row["op"]: row for row in document["rows"] if not row["error"]}
    about = {"schema": SCHEMA, "model": arguments.model, "drafts": arguments.drafts, "seed": arguments.seed, "machine": platform.machine(),
             "cores": os.cpu_count(), "python": platform.python_version()}
    with tempfile.TemporaryDirectory() as home:
        for name, group in wanted:
            if name not in rows:
                rows[name] = {**mint(name, arguments, Path(home)), "group": group, "heldout": name in out}
                print(f"{len(rows)}/{len(wanted)} {name} {rows[name]['correct']}/{rows[name]['drafts']}", file=sys.stderr, flush=True)
                document = {**about, "rows": list(rows.values()), "summary": summary(list(rows.values()))}
                arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    figures = summary(list(rows.values()))
    show(list(rows.values()), figures)
    return 0 if all(figures[key] is None or figures[key] >= goal for key, goal in GOALS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
