"""Judge the drafts that training sampled: `python -m forge.judge_drafts DRAFTS.jsonl [--level quick|referee]`.

A draft whose canonical form is a corpus kernel that passed (`--passed`) is right without a second look; the others are
judged in parallel. Prints correct drafts by op, held-out ops marked, and the reasons of the failures.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from forge.grammar import canonical_hash
from forge.passed import read_passed
from forge.validate import Job, judge_quick, judge_referee
from forge.workers import results
from kmint_tui.smith.extract import extract
from referee.ops import get


def _digest(source: str) -> str:
    try:
        return canonical_hash(source)
    except SyntaxError:
        return ""


def _judge(argument: tuple[dict[str, Any], str]) -> dict[str, Any]:
    entry, level = argument
    job = Job("", get(entry["op"]), "", entry["kernel"])
    return {**entry, "reason": judge_referee(job) if level == "referee" else judge_quick(job)}


def judge(drafts: list[dict[str, Any]], level: str, passed: frozenset[str], processes: int) -> list[dict[str, Any]]:
    """Every draft with a `reason`, empty when it is right."""
    done, todo = [], []
    for entry in drafts:
        kernel = extract(entry["source"], "length" if entry["cut"] else "stop").source or ""
        digest = _digest(kernel)
        entry = {**entry, "kernel": kernel}
        if not digest:
            done.append({**entry, "reason": "does not parse"})
        elif digest in passed:
            done.append({**entry, "reason": "", "known": True})
        else:
            todo.append(entry)
    return done + list(results(_judge, [(entry, level) for entry in todo], processes))


def report(judged: list[dict[str, Any]]) -> None:
    """The table."""
    by_op: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in judged:
        by_op[entry["op"]].append(entry)
    for out in (False, True):
        part = {op: rows for op, rows in by_op.items() if rows[0]["heldout"] is out}
        if not part:
            continue
        right = {op: sum(not row["reason"] for row in rows) for op, rows in part.items()}
        drafts = sum(map(len, part.values()))
        print(
            f"{'held out' if out else 'trained'}: {sum(map(bool, right.values()))}/{len(part)} ops, {sum(right.values())}/{drafts} drafts"
        )
        for op, rows in part.items():
            if right[op] < len(rows):
                reasons = Counter(row["reason"][:110] for row in rows if row["reason"])
                print(f"  {op:32} {right[op]}/{len(rows)}  {'; '.join(f'{count}x {text}' for text, count in reasons.most_common(3))}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="judge sampled drafts")
    parser.add_argument("drafts", type=Path)
    parser.add_argument("--level", choices=("quick", "referee"), default="quick")
    parser.add_argument("--passed", type=Path, help="hashes of kernels that passed already")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the judged drafts here")
    arguments = parser.parse_args()
    lines = arguments.drafts.read_text(encoding="utf-8").splitlines()
    passed = read_passed(arguments.passed) if arguments.passed else frozenset()
    judged = judge([json.loads(line) for line in lines], arguments.level, passed, arguments.processes)
    report(judged)
    if arguments.out:
        arguments.out.write_text("".join(json.dumps(entry) + "\n" for entry in judged), encoding="utf-8")


if __name__ == "__main__":
    main()
