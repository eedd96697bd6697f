"""Timing: does the referee call a kernel faster than it is, or miss one that is slower?"""

from __future__ import annotations

from collections import Counter
from statistics import mean
from typing import Any

from bench.claims.claim import Claim, Figures, Raw, Rows


def _quality(raw: Raw) -> Figures:
    groups = raw["groups"]

    def of(ending: str) -> dict[str, list[dict[str, Any]]]:
        return {
            name.partition(",")[0]: runs
            for name, runs in groups.items()
            if name.endswith(f", {ending}")
        }

    return {
        "twins": _counted([run for runs in of("twin").values() for run in runs]),
        "planted": {
            share: _counted([run for runs in of(f"{share} slower").values() for run in runs])
            for share in ("2%", "5%")
        },
        "repeated": {name: _width(runs) for name, runs in of("repeated").items()},
        "repeated_10%_slower": {
            name: _width(runs) for name, runs in of("repeated at 10% slower").items()
        },
    }


def _counted(runs: list[dict[str, Any]]) -> dict[str, Any]:
    ratios = [run["ratio"] for run in runs]
    decisions = dict(Counter(run["decision"] for run in runs))
    return {
        "count": len(runs),
        "decisions": decisions,
        "lowest": round(min(ratios), 4),
        "mean": round(mean(ratios), 4),
        "highest": round(max(ratios), 4),
    }


def _width(runs: list[dict[str, Any]]) -> float:
    ratios: list[float] = [run["ratio"] for run in runs]
    return round((max(ratios) - min(ratios)) / mean(ratios), 5)


def _quality_rows(figures: Figures) -> Rows:
    twins = figures["twins"]
    widths = [*figures["repeated"].values(), *figures["repeated_10%_slower"].values()]
    rows = {
        "A kernel against its own twin": f"{twins['count']} times: {_decided(twins)}",
        "Ratio of twins: lowest, mean, highest": ", ".join(
            f"{twins[name]:.3f}" for name in ("lowest", "mean", "highest")
        ),
    }
    for share, runs in figures["planted"].items():
        rows[f"A twin made {share.replace('%', ' %')} slower"] = (
            f"{runs['count']} times: {_decided(runs)}"
        )
    rows["Width of 20 repeated ratios, six groups"] = (
        f"{100 * min(widths):.1f} to {100 * max(widths):.1f} %"
    )
    return rows


def _decided(runs: dict[str, Any]) -> str:
    return ", ".join(
        f"{runs['decisions'].get(name, 0)} {name}" for name in ("win", "tie", "loss", "unsure")
    )


def _repeated(raw: Raw) -> Figures:
    return {
        "times": raw["times"],
        "operations": [
            {
                "op": one["op"],
                "width": round(one["spread"], 5),
                "decisions": dict(Counter(verdict["verdict"] for verdict in one["verdicts"])),
            }
            for one in raw["ops"]
        ],
    }


def _repeated_rows(figures: Figures) -> Rows:
    return {one["op"]: _one_operation(one) for one in figures["operations"]}


def _one_operation(one: dict[str, Any]) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in one["decisions"].items())
    return f"{counts}; width {100 * one['width']:.1f} %"


def _block(raw: Raw) -> Figures:
    return {"rows": raw["rows"]}


def _block_rows(figures: Figures) -> Rows:
    return {
        _shape(row): f"{row['ratio']:.3f}x ({row['after_us']:.0f} us)" for row in figures["rows"]
    }


def _shape(row: dict[str, Any]) -> str:
    return f"{row['tokens']} tokens, width {row['width']}, {row['dtype']}"


TIMING = (
    Claim(
        name="timing_quality",
        title="Twins and planted slow-downs",
        script="python bench/timing_quality.py --json RAW.json",
        schema="kmint.bench.timing_quality/1",
        about=(
            "A twin is the same kernel again, so every win of a twin would be false. A planted "
            "kernel does some rows twice."
        ),
        reduce=_quality,
        rows=_quality_rows,
    ),
    Claim(
        name="repeated_verdicts",
        title="The same verdict again and again",
        script="python bench/repeated_verdicts.py --json RAW.json",
        schema="kmint.bench.repeated_verdicts/1",
        about=(
            "A full verdict on one kernel, 20 times, for six operations: the decisions, and how"
            " far apart the ratios lie."
        ),
        reduce=_repeated,
        rows=_repeated_rows,
    ),
    Claim(
        name="saved_block",
        title="A transformer block with saved kernels",
        script="python bench/saved_block.py --json RAW.json",
        schema="kmint.bench.saved_block/1",
        about=(
            "The block with three saved kernels against `torch.compile` of the same block. "
            "Matrix products take most of its time."
        ),
        reduce=_block,
        rows=_block_rows,
    ),
)
