"""Many devices: how work scales to them, and judgements while workers and the driver die."""

from __future__ import annotations

from bench.claims.claim import Claim, Figures, Raw, Rows, percent


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


SCALING = (
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
