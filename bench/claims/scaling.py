"""Many devices: how work scales to them, and judgements while workers and the driver die."""

from __future__ import annotations

from typing import Any

from bench.claims.claim import Claim, Figures, Raw, Rows, percent, quantile


def _scaling(raw: Raw) -> Figures:
    return {
        "task_seconds": dict(raw["task_seconds"]),
        "rows_a_second": dict(raw["writer"]["rows_a_second"]),
        "jobs_a_second": raw["writer"]["jobs_a_second"],
        "sync_seconds": raw["writer"]["sync_seconds"],
        "bends_at": dict(raw["bends_at"]),
        "loads": {
            name: {gpus: dict(one) for gpus, one in load.items()}
            for name, load in raw["loads"].items()
        },
    }


def _scaling_rows(figures: Figures) -> Rows:
    rows = {
        f"{name}: seconds on 1, 64 and 1,024 GPUs; efficiency on 64 and 1,024": (
            ", ".join(f"{load[gpus]['seconds']:,.0f}" for gpus in ("1", "64", "1024"))
            + "; "
            + ", ".join(percent(load[gpus]["efficiency"]) for gpus in ("64", "1024"))
        )
        for name, load in figures["loads"].items()
    }
    kept = figures["rows_a_second"]
    sizes = ", ".join(f"{int(size):,}" for size in kept)
    return {
        f"Verdicts a second into a session of {sizes} drafts": ", ".join(
            f"{rate:.0f}" for rate in kept.values()
        ),
        "Jobs a second that the driver makes and reads": f"{figures['jobs_a_second']:,.0f}",
        "GPUs that keep the history's writer busy, with verdicts": str(
            figures["bends_at"]["verdict"]
        ),
        **rows,
    }


def _ray(raw: Raw) -> Figures:
    counted = {name: len(raw[name]) for name in ("lost", "wrong", "twice", "changed")}
    names = ("judgements", "raylets", "seconds", "kills", "driver_kills", "before", "versions")
    return {**{name: raw[name] for name in names}, **counted}


def _ray_rows(figures: Figures) -> Rows:
    return {
        "Judgements, raylets": f"{figures['judgements']}, {figures['raylets']}",
        "Kills of workers, of the driver": f"{figures['kills']}, {figures['driver_kills']}",
        "Verdicts before the driver's death": str(figures["before"]),
        "Lost, wrong, twice in the history, changed": ", ".join(
            str(figures[name]) for name in ("lost", "wrong", "twice", "changed")
        ),
        "A host with another Triton": figures["versions"],
    }


def compared(found: Raw) -> Figures:
    """One part of the raw document of two GPUs: its command on one and on two.

    `differences` are those of the ratios of places with the same kernel in both runs; `noise` are
    those of two runs on one GPU. `unlike` has the places whose verdicts differ.
    """
    one, two = found["one"], found["two"]
    return {
        "setup_seconds": found["setup"]["seconds"] + found.get("baselines_seconds", 0.0),
        "one_seconds": one["seconds"],
        "two_seconds": two["seconds"],
        "speedup": round(one["seconds"] / two["seconds"], 3),
        "places": len(one["places"]),
        "unlike": _unlike(one["places"], two["places"]),
        "differences": _differences(one["places"], two["places"]),
        "noise": _differences(one["places"], found.get("again", {}).get("places", {})),
    }


def _unlike(one: dict[str, Any], two: dict[str, Any]) -> dict[str, list[str]]:
    verdicts = {
        place: [some[place]["verdict"] if place in some else "missing" for some in (one, two)]
        for place in (*one, *(place for place in two if place not in one))
    }
    return {place: both for place, both in verdicts.items() if both[0] != both[1]}


def _differences(one: dict[str, Any], two: dict[str, Any]) -> list[float]:
    pairs = [(one[place], two[place]) for place in one if place in two]
    return [
        round(then["ratio"] / first["ratio"] - 1, 5)
        for first, then in pairs
        if first["ratio"] and then["ratio"] and first["kernel"] == then["kernel"]
    ]


def _two(raw: Raw) -> Figures:
    whole = {part: found for part, found in raw["parts"].items() if "two" in found}
    return {
        "cores": raw["cores"],
        "parts": {part: compared(found) for part, found in whole.items()},
    }


def _two_rows(figures: Figures) -> Rows:
    rows: Rows = {}
    for part, one in figures["parts"].items():
        named = f"{part.capitalize()} of {one['places']} places"
        rows[f"{named}: seconds on one GPU, on two; speed-up"] = (
            f"{one['one_seconds']:.0f}, {one['two_seconds']:.0f}; {one['speedup']:.2f}x"
        )
        rows[f"{named}: verdicts that differ"] = (
            "; ".join(f"{place}: {' and '.join(both)}" for place, both in one["unlike"].items())
            or "none"
        )
        for name, about in (("differences", "one GPU and two"), ("noise", "one GPU, twice")):
            if sizes := [abs(value) for value in one[name]]:
                rows[f"{named}: difference of the ratios of equal kernels, {about}"] = (
                    f"median {percent(quantile(sizes, 0.5))}, largest {percent(max(sizes))} of {len(sizes)}"
                )
    return rows


TWO_GPUS = Claim(
    name="two_gpus",
    title="One GPU and two of the same host",
    script="python bench/two_gpus.py --again --json RAW.json",
    schema="kmint.bench.two_gpus/1",
    about=(
        "`kmint grid` and `kmint book build` run on one GPU and on two, in one home. Baselines are"
        " compiled, the book's drafts are made, and each command has run once on two GPUs before. The"
        " whole seconds of the commands count."
    ),
    reduce=_two,
    rows=_two_rows,
)

SCALING = (
    TWO_GPUS,
    Claim(
        name="many_gpus",
        title="Many GPUs, simulated",
        script="python bench/many_gpus.py --json RAW.json",
        schema="kmint.bench.many_gpus/1",
        about=(
            "One driver and up to 1,024 GPUs are simulated. The seconds of tasks are those measured"
            " on an H200: verdicts with warm baselines, and cells whose baselines are built first."
            " The driver's own work is measured on this machine: processor time, and two waits for"
            " the disk for each verdict."
        ),
        reduce=_scaling,
        rows=_scaling_rows,
    ),
    Claim(
        name="ray_kills",
        title="Judging on Ray while workers and the driver die",
        script="python bench/ray_kills.py --json RAW.json",
        schema="kmint.bench.ray_kills/1",
        about=(
            "Two raylets on one machine judge kernels whose verdict is known. Workers are killed"
            " while they judge, and the driver once; the same command then goes on. Afterwards a"
            " host with another Triton joins."
        ),
        reduce=_ray,
        rows=_ray_rows,
    ),
)
