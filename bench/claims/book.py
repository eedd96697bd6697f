"""The book: minutes of a build for a fresh card, its ratios, and the causes of its waiting."""

from __future__ import annotations

import math
from typing import Any

from bench.claims.claim import Claim, Figures, Raw, Rows, quantile, times


def _reduce(raw: Raw) -> Figures:
    built = raw["built"]
    again = [one for one in raw.get("rejudged", {}).get("entries", []) if one["ratio"]]
    load = {name: round(sum(found) / max(1, len(found)), 1) for name, found in raw["load"].items()}
    return {
        "operations": raw["operations"],
        "cores": raw["cores"],
        "seconds": raw["seconds"],
        "failures": built["failures"],
        "entries": [_entry(one) for one in built["entries"]],
        "profile": built["seconds"],
        "busy": load,
        "differences": [round(one["difference"], 5) for one in again],
    }


def _entry(one: dict[str, Any]) -> dict[str, Any]:
    figures = one["figures"]
    place = {name: one[name] for name in ("op", "shape", "dtype", "author")}
    kept = {name: figures[name] for name in ("verdict", "ratio", "us", "floor_share")}
    return {**place, **kept}


def _rows(figures: Figures) -> Rows:
    entries, profile = figures["entries"], figures["profile"]
    ratios = [one["ratio"] for one in entries]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
    outcomes = [one["verdict"] for one in entries]
    counted = ", ".join(
        f"{outcomes.count(name)} {name}" for name in ("win", "tie", "unsure", "loss")
    )
    losses = ", ".join(
        f"{one['op']} {one['shape']} {times(one['ratio'])}"
        for one in sorted(entries, key=lambda one: float(one["ratio"]))
        if one["verdict"] == "loss"
    )
    authors = [one["author"] for one in entries]
    rows = {
        "Operations, kernels, operations without one": (
            f"{figures['operations']}, {len(entries)}, {len(figures['failures'])}"
        ),
        "Minutes, on this number of cores": f"{figures['seconds'] / 60:.1f}, {figures['cores']}",
        "Best kernels against the fastest baseline": f"{counted}; geometric mean {times(mean)}",
        "Every loss": losses or "none",
        "Kernels by the smith, the template, the tuner": ", ".join(
            str(authors.count(name)) for name in ("smith", "template", "tuner")
        ),
        "Seconds of waiting for": ", ".join(
            f"{name} {value:.0f}" for name, value in profile["waited"].items()
        ),
        "Share of the time in which the GPU and the cores were busy": ", ".join(
            f"{figures['busy'][name]:.0f} %" for name in ("gpu", "cores")
        ),
    }
    if found := [abs(value) for value in figures["differences"]]:
        rows["Judged again: difference of the ratio, median and largest"] = (
            f"{100 * quantile(found, 0.5):.1f} %, {100 * max(found):.1f} %"
        )
    return rows


BOOK = (
    Claim(
        name="book_build",
        title="A book for a fresh card",
        script="python bench/book_build.py --rejudge --json RAW.json",
        schema="kmint.bench.book_build/1",
        about="`kmint book build` of the first operations of the book's order, in a new home: every baseline and every kernel is compiled.",
        reduce=_reduce,
        rows=_rows,
    ),
)
