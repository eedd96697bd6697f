"""Runs `kmint mint OP --drafts 8 --seed 1` for every op of the catalogue: success rates and times.

    python bench/mint_catalogue.py [--json FILE] [--model ID|PATH] [--ops OP ...] [--remix]
                                   [--functions] [--seconds LIMIT] [--judges N]

The mint loop is that of the command, with one smith and one referee for all ops. The table marks
held-out ops. FILE gets every finished op at once, and the next call does not run it again. The
script prints a table, then the failures by name. With a GPU each row holds the best kernel's device
time, the copy floor, every baseline and the decision.

Exit code 1 when the shares of right ops or drafts miss a goal of GOALS. Exit code 3 when LIMIT
ended the run before the last op.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from forge.heldout import heldout_names, heldout_remixes  # noqa: E402
from kmint_tui.core.planning import MintOptions, plan  # noqa: E402
from kmint_tui.core.referee import no_gpu_reason  # noqa: E402
from kmint_tui.events import Finished  # noqa: E402
from kmint_tui.history.store import History  # noqa: E402
from kmint_tui.mint import Mint  # noqa: E402
from kmint_tui.minting.request import environment  # noqa: E402
from kmint_tui.minting.result import MintResult  # noqa: E402
from kmint_tui.smith import Options, Smith  # noqa: E402
from referee.judge import Referee  # noqa: E402
from referee.ops import catalogue, functions  # noqa: E402

SCHEMA = "kmint.bench.mint_catalogue/1"
GOALS = {"ops": 0.9, "heldout": 0.9, "drafts": 0.8, "functions": 0.9}


def row_of(result: MintResult, group: str, held_out: bool) -> dict[str, Any]:
    """One op's row of the table."""
    reasons = []
    for draft in result.drafts:
        verdict = result.verdict_of(draft)
        if verdict is None:
            reasons.append(f"not judged ({draft.finish})")
        elif not verdict.passed:
            reasons.append(f"{verdict.stage}/{verdict.guard}: {verdict.reason}")
    best = result.verdicts[result.best] if result.best is not None else None
    return {
        "op": result.request.op.name,
        "group": group,
        "heldout": held_out,
        "drafts": len(result.drafts),
        "correct": result.passed,
        "distinct": sum(draft.duplicate_of is None for draft in result.drafts),
        "seconds": round(result.seconds, 2),
        "stage_seconds": [
            {name: round(value, 3) for name, value in verdict.seconds.items()}
            for verdict in result.verdicts.values()
        ],
        "reasons": reasons,
        "best": timing_of(best.timing, best.verdict) if best is not None else None,
        "source": result.drafts[result.best].source if result.best is not None else None,
    }


def timing_of(timing: Mapping[str, Any] | None, outcome: str) -> dict[str, Any]:
    """Medians in microseconds and the ratio with its interval; only the outcome where nothing was
    timed.
    """
    if timing is None:
        return {"outcome": outcome}
    return {
        "outcome": outcome,
        "cell": timing["cell"],
        "device_us": {
            name: round(summary["median"], 2) for name, summary in timing["device"].items()
        },
        "call_us": {name: round(summary["median"], 2) for name, summary in timing["call"].items()},
        "bar": timing["bar"],
        "ratio": timing["ratio"],
        "ratios": {
            name: round(interval["ratio"], 4) for name, interval in timing["ratios"].items()
        },
        "missing": timing["missing"],
        "rounds": timing["rounds"],
        "dropped_rounds": timing["dropped_rounds"],
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Shares of ops and drafts, all and held out, catalogue ops apart from remixes."""
    listed = [row for row in rows if row["group"] == "catalogue"]
    out = [row for row in listed if row["heldout"]]
    remix = [row for row in rows if row["group"] == "remix"]
    function = [row for row in rows if row["group"] == "function"]

    def ops_share(part: list[dict[str, Any]]) -> float | None:
        return round(sum(row["correct"] > 0 for row in part) / len(part), 4) if part else None

    def drafts_share(part: list[dict[str, Any]]) -> float | None:
        drafts = sum(row["drafts"] for row in part)
        return round(sum(row["correct"] for row in part) / drafts, 4) if drafts else None

    outcomes = [row["best"]["outcome"] if row["best"] else "none" for row in listed]
    return {
        "ops": ops_share(listed),
        "heldout": ops_share(out),
        "drafts": drafts_share(listed),
        "drafts_heldout": drafts_share(out),
        "remix": ops_share(remix),
        "drafts_remix": drafts_share(remix),
        "functions": ops_share(function),
        "drafts_functions": drafts_share(function),
        "count": len(listed),
        "count_heldout": len(out),
        "outcomes": {name: outcomes.count(name) for name in sorted(set(outcomes))},
        "failures": [row["op"] for row in rows if not row["correct"]],
    }


def show(rows: list[dict[str, Any]], figures: Mapping[str, Any]) -> None:
    """The table on stdout."""
    for row in rows:
        best = row["best"] or {}
        timed = ""
        if "device_us" in best:
            device = best["device_us"]
            ratio = best["ratio"]["ratio"] if best["ratio"] else float("nan")
            timed = f"{device['candidate']:8.1f} us  floor {device.get('floor', float('nan')):8.1f}  {ratio:5.2f}x {best['bar']}"
        note = "" if row["correct"] == row["drafts"] else row["reasons"][0][:100]
        mark = "held out" if row["heldout"] else ""
        share, outcome = f"{row['correct']:>2}/{row['drafts']:<2}", best.get("outcome", "-")
        print(f"{row['op']:34} {share} {row['seconds']:6.1f} s {mark:9} {outcome:8} {timed} {note}")
    for key in (
        "ops",
        "heldout",
        "drafts",
        "drafts_heldout",
        "remix",
        "drafts_remix",
        "functions",
        "drafts_functions",
    ):
        if figures[key] is not None:
            print(f"{key:15} {100 * figures[key]:.1f} %")
    print(
        "best kernels:", ", ".join(f"{count} {name}" for name, count in figures["outcomes"].items())
    )
    print("failures:", ", ".join(figures["failures"]) or "none")


def parse() -> argparse.Namespace:
    """Command-line arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--drafts", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ops", nargs="*", help="only these ops")
    parser.add_argument("--remix", action="store_true", help="also the held-out remix ops")
    parser.add_argument(
        "--functions", action="store_true", help="also the operations that are functions"
    )
    parser.add_argument("--judges", type=int, default=max(1, min(4, len(os.sched_getaffinity(0)))))
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="start no op after this time"
    )
    return parser.parse_args()


def main() -> int:
    """Runs the missing ops, keeps every row, and prints the table."""
    arguments = parse()
    started = time.monotonic()
    out = heldout_names()
    wanted = [(op.name, "catalogue") for op in catalogue()]
    wanted += [(name, "remix") for name in heldout_remixes()] if arguments.remix else []
    wanted += [(op.name, "function") for op in functions()] if arguments.functions else []
    wanted = [(name, group) for name, group in wanted if not arguments.ops or name in arguments.ops]
    document: dict[str, Any] = (
        json.loads(arguments.json.read_text()) if arguments.json.exists() else {"rows": []}
    )
    rows: dict[str, dict[str, Any]] = {row["op"]: row for row in document["rows"]}
    lonely = no_gpu_reason()
    with (
        tempfile.TemporaryDirectory() as home,
        Referee(cache=Path(home) / "referee") as referee,
        History(Path(home) / "history.db") as history,
    ):
        first = plan(wishes(wanted[0][0], arguments), draw_seed=lambda: arguments.seed)
        about = {
            "schema": SCHEMA,
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "model": arguments.model,
            "model_sha256": first.model_sha256,
            "drafts": arguments.drafts,
            "seed": arguments.seed,
            "cores": len(os.sched_getaffinity(0)),
            "mode": "interpret" if lonely else "replay",
            "environment": environment(),
        }
        with Smith(
            first.model.file.path,
            Options(log=Path(home) / "smith.log", tuning=Path(home) / "tuning.json"),
        ) as smith:
            for name, group in wanted:
                if name in rows or time.monotonic() - started > arguments.seconds:
                    continue
                request = plan(wishes(name, arguments), draw_seed=lambda: arguments.seed)
                session = Mint(
                    request,
                    smith=smith,
                    judge=referee,
                    history=history,
                    times=lonely is None,
                    judges=arguments.judges,
                )
                (finished,) = [event for event in session.run() if isinstance(event, Finished)]
                rows[name] = row_of(finished.result, group, name in out)
                devices = [verdict.environment for verdict in finished.result.verdicts.values()]
                document = {
                    **about,
                    "referee": devices[0] if devices else None,
                    "rows": list(rows.values()),
                }
                document["summary"] = summary(list(rows.values()))
                arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
                row = rows[name]
                print(
                    f"{len(rows)}/{len(wanted)} {name} {row['correct']}/{row['drafts']} {row['seconds']} s",
                    file=sys.stderr,
                    flush=True,
                )
    figures = summary(list(rows.values()))
    show(list(rows.values()), figures)
    if len(rows) < len(wanted):
        return 3
    return (
        0 if all(figures[key] is None or figures[key] >= goal for key, goal in GOALS.items()) else 1
    )


def wishes(op: str, arguments: argparse.Namespace) -> MintOptions:
    """The same as `kmint mint OP --drafts N --seed S --model M`."""
    return MintOptions(
        op=op,
        reference=None,
        model=arguments.model,
        drafts=arguments.drafts,
        seed=arguments.seed,
        temperature=None,
        top_p=None,
        max_tokens=None,
        until="best",
        target=None,
        dialect=None,
        template=False,
    )


if __name__ == "__main__":
    sys.exit(main())
