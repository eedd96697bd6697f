"""Minting: every operation of the catalogue with the smith of the package."""

from __future__ import annotations

import math
import statistics
from typing import Any

from bench.claims.claim import Claim, Figures, Raw, Rows, percent, times
from referee.ops import catalogue

QUIET = 3.0
"""Maximum median load at which times of two cores are shown: the command's own, and little more."""
LARGEST = 4
"""Number of wins that the table names."""


def _reduce(raw: Raw) -> Figures:
    return {
        "model": raw["model"],
        "drafts": raw["drafts"],
        "seed": raw["seed"],
        "operations": [_operation(row) for row in raw["rows"] if row["group"] == "catalogue"],
        "remixes": [_operation(row) for row in raw["rows"] if row["group"] == "remix"],
        "functions": [_operation(row) for row in raw["rows"] if row["group"] == "function"],
    }


def _operation(row: dict[str, Any]) -> dict[str, Any]:
    best = row["best"] or {}
    ratio, device = best.get("ratio"), best.get("device_us") or {}
    kept = {
        "op": row["op"],
        "unseen": row["heldout"],
        "drafts": row["drafts"],
        "correct": row["correct"],
        "seconds": row["seconds"],
        "best": best.get("outcome", "none"),
    }
    if ratio is not None:
        kept |= {
            "ratio": round(ratio["ratio"], 6),
            "bar": best["bar"],
            "us": device.get("candidate"),
            "floor_us": device.get("floor"),
        }
    return kept


def readme_rows(figures: Figures) -> Rows:
    """The six rows of README: the right operations, the faster ones, and every loss."""
    ops = figures["operations"]
    unseen = [op for op in ops if op["unseen"]]
    timed = sorted((op for op in ops if "ratio" in op), key=lambda op: -op["ratio"])
    outcomes = [op["best"] for op in ops]
    mean = math.exp(sum(math.log(op["ratio"]) for op in timed) / len(timed)) if timed else None
    wins = [op for op in timed if op["best"] == "win"]
    losses = [op for op in reversed(timed) if op["best"] == "loss"]
    counted = ", ".join(
        f"{outcomes.count(name)} {name}" for name in ("win", "tie", "unsure", "loss")
    )
    rows = {
        "Operations with a correct kernel": _share_of_ops(ops) + _not_run(ops),
        "Of them unseen in training": _share_of_ops(unseen),
        "Correct drafts": f"{_share_of_drafts(ops)} (unseen {_share_of_drafts(unseen)})",
    }
    if mean is not None:
        rows |= {
            "Best kernel against the fastest baseline": f"{counted}; geometric mean {times(mean)}",
            "Largest wins": ", ".join(f"{op['op']} {times(op['ratio'])}" for op in wins[:LARGEST]),
            "Every loss": ", ".join(f"{op['op']} {times(op['ratio'])}" for op in losses) or "none",
        }
    return rows


def _rows(figures: Figures) -> Rows:
    remixes, ops = figures["remixes"], figures["operations"]
    seconds = sorted(op["seconds"] for op in ops)
    rows = readme_rows(figures)
    if remixes:
        rows["Two stacked activations, unseen"] = (
            f"{_share_of_ops(remixes)}; {_share_of_drafts(remixes)} of the drafts"
        )
    if functions := figures.get("functions"):
        rows["Operations with several results or other layouts"] = (
            f"{_share_of_ops(functions)}; {_share_of_drafts(functions)} of the drafts"
        )
    rows["Seconds an operation, drafts and verdicts, median"] = f"{seconds[len(seconds) // 2]:.1f}"
    return rows


def _share_of_ops(ops: list[dict[str, Any]]) -> str:
    return f"{sum(op['correct'] > 0 for op in ops)} of {len(ops)}"


def _not_run(ops: list[dict[str, Any]]) -> str:
    """The operations of the catalogue that the run did not reach."""
    left = len(catalogue()) - len(ops)
    return f" (the other {left} of the catalogue were not run)" if left > 0 else ""


def _share_of_drafts(ops: list[dict[str, Any]]) -> str:
    drafts = sum(op["drafts"] for op in ops)
    return percent(sum(op["correct"] for op in ops) / drafts) if drafts else "none"


def _own(raw: Raw) -> Figures:
    rows = [
        {
            name: row.get(name)
            for name in (
                "name",
                "scope",
                "drafts",
                "right",
                "template",
                "first",
                "processor",
                "load",
            )
        }
        for row in raw["rows"]
    ]
    asked = {"drafts_a_function": raw["drafts"], "seed": raw["seed"]}
    return {**asked, **raw["summary"], "rows": rows}


def _own_rows(figures: Figures) -> Rows:
    def share(name: str) -> str:
        return percent(figures[name]) if figures[name] is not None else "none"

    missed = [
        row["name"].partition(":")[2]
        for row in figures["rows"]
        if ":" in row["name"] and not row["right"]
    ]
    rows = {
        "Functions with a graph": f"{figures['in_scope']} of {figures['count']}",
        "Functions with a verified kernel of the smith": share("functions"),
        "Correct drafts": share("drafts"),
        "With kmint's template": share("with_template"),
        "Without a verified kernel of the smith": ", ".join(missed) or "none",
    }
    busy = statistics.median(row["load"] for row in figures["rows"]) > QUIET
    for label, name in (
        ("Seconds from command to first verified kernel, median", "seconds"),
        ("Processor seconds of the command, median", "processor_seconds"),
    ):
        own, known = (figures.get(f"{of}_{name}") for of in ("own", "catalogue"))
        told = f"{own}; operations of the catalogue {known}"
        rows[label] = "not told: other work kept the machine busy" if busy or not own else told
    return rows


def _speed(raw: Raw) -> Figures:
    rows = []
    for row in raw["rows"]:
        best = row["best"] or {}
        ratio = best.get("ratio")
        rows.append(
            {
                "name": row["name"],
                "size": row["size"],
                "outcome": best.get("outcome"),
                "ratio": round(ratio["ratio"], 4) if ratio else None,
                "bar": best.get("bar"),
                "us": (best.get("device_us") or {}).get("candidate"),
            }
        )
    return {
        "drafts_a_function": raw["drafts"],
        "seed": raw["seed"],
        "summary": raw["summary"],
        "rows": rows,
    }


def _speed_rows(figures: Figures) -> Rows:
    rows: Rows = {}
    for size, found in figures["summary"].items():
        if not found["functions"]:
            rows[f"At {size}"] = "not measured"
            continue
        counts, losses = found["outcomes"], found["losses"]
        told = ", ".join(f"{name} {times(ratio)}" for name, ratio in losses.items()) or "none"
        rows[f"At {size}: functions, with a kernel"] = (
            f"{found['functions']}, {found['with_kernel']}"
        )
        rows[f"At {size}: geometric mean against the fastest baseline"] = times(found["mean"])
        rows[f"At {size}: against eager, compile, max-autotune"] = ", ".join(
            times(found["means"][name])
            for name in ("eager", "compile", "max-autotune-no-cudagraphs")
        )
        rows[f"At {size}: wins, ties, undecided, losses"] = ", ".join(
            str(counts.get(name, 0)) for name in ("win", "tie", "unsure", "loss")
        )
        rows[f"At {size}: losses"] = told
    return rows


MINTING = (
    Claim(
        name="mint_catalogue",
        title="Minting every operation",
        script="python bench/mint_catalogue.py --json RAW.json",
        schema="kmint.bench.mint_catalogue/1",
        about=(
            "The embedded smith drafts 8 kernels for each operation of the catalogue, with "
            "seed 1. Device time with cold caches "
            "counts. The fastest baseline is the fastest of eager PyTorch, `torch.compile` "
            "and `max-autotune-no-cudagraphs`. "
            "*Unseen* operations were kept out of the smith's training data."
        ),
        reduce=_reduce,
        rows=_rows,
    ),
    Claim(
        name="own_functions",
        title="Minting functions of one's own",
        script="python bench/own_functions.py --json RAW.json",
        schema="kmint.bench.own_functions/1",
        about=(
            "Functions as people write them, none of which the smith saw in training "
            "(`bench/functions`). The embedded smith drafts 8 kernels for each, with seed 1, "
            "from `kmint mint --reference FILE:FUNCTION --input ...`. The template's kernel "
            "counts in its own row only."
        ),
        reduce=_own,
        rows=_own_rows,
    ),
    Claim(
        name="own_speed",
        title="Speed of functions of one's own",
        script="python bench/own_speed.py --drafts DRAFTS.json --json RAW.json",
        schema="kmint.bench.own_speed/1",
        about=(
            "Device time in bfloat16 of the best of 8 drafts of the embedded smith, for 30 of the "
            "functions of `bench/functions`, against the fastest of eager PyTorch, `torch.compile` and "
            "`max-autotune-no-cudagraphs`. The template's kernel does not count."
        ),
        reduce=_speed,
        rows=_speed_rows,
    ),
)
