"""Safety of kmint: kills, damaged and hostile input, many judgements in a row."""

from __future__ import annotations

from bench.claims.claim import Claim, Figures, Raw, Rows


def _kills(raw: Raw) -> Figures:
    return {
        "operations": {
            one["operation"]: {
                "kills": one["kills"],
                "too_late": one["ended_before"],
                "wrong": len(one["wrong"]),
            }
            for one in raw["operations"]
        }
    }


def _kill_rows(figures: Figures) -> Rows:
    return {
        f"`{name}`: kills, too late, something lost or left": (
            f"{one['kills']}, {one['too_late']}, {one['wrong']}"
        )
        for name, one in figures["operations"].items()
    }


def _readers(raw: Raw) -> Figures:
    readers = raw["readers"]
    return {
        "readers": len(readers),
        "inputs": sum(one["accepted"] + one["refused"] for one in readers),
        "fewest": min(one["accepted"] + one["refused"] for one in readers),
        "faults": sum(sum(one["faults"].values()) for one in readers),
        "slowest_s": round(max(one["slowest_s"] for one in readers), 2),
        "peak_mb": round(max(one["peak_mb"] for one in readers)),
    }


def _reader_rows(figures: Figures) -> Rows:
    return {
        "Readers": str(figures["readers"]),
        "Inputs, all told and for each reader": f"{figures['inputs']:,}, {figures['fewest']:,}",
        "Internal faults": str(figures["faults"]),
        "Slowest input, s": f"{figures['slowest_s']:.2f}",
        "Peak memory, MB": str(figures["peak_mb"]),
    }


def _growth(raw: Raw) -> Figures:
    names = ("judgements", "memory_mib", "files", "processes", "threads", "temporary")
    return {
        "threads": raw["threads"],
        "seconds": raw["seconds"],
        "first": {name: raw["counts"][0][name] for name in names},
        "last": {name: raw["counts"][-1][name] for name in names},
    }


def _growth_rows(figures: Figures) -> Rows:
    first, last = figures["first"], figures["last"]
    labels = {
        "memory_mib": "Memory, MiB",
        "files": "Open files",
        "processes": "Processes",
        "threads": "Threads",
        "temporary": "Temporary files",
    }
    count = f"after {first['judgements']} and {last['judgements']} judgements"
    return {
        f"{label}, {count}": f"{first[name]:g}, {last[name]:g}" for name, label in labels.items()
    }


SAFETY = (
    Claim(
        name="kill_commands",
        title="Killed commands",
        script="python bench/kill_commands.py --json RAW.json",
        schema="kmint.bench.kill_commands/1",
        about=(
            "A command is killed with SIGKILL at a random moment or before a random change to a"
            " file. Nothing may be lost, and nothing may be left after the next start."
        ),
        reduce=_kills,
        rows=_kill_rows,
    ),
    Claim(
        name="fuzz_readers",
        title="Damaged and hostile input",
        script="python bench/fuzz_readers.py --json RAW.json",
        schema="kmint.bench.fuzz_readers/1",
        about=(
            "Each reader of JSON, TOML, JSON lines and archives gets random and damaged input."
            " None may end in an internal fault, hang, or take more than 500 MB."
        ),
        reduce=_readers,
        rows=_reader_rows,
    ),
    Claim(
        name="growth",
        title="Many judgements in a row",
        script="python bench/growth.py --json RAW.json",
        schema="kmint.bench.growth/1",
        about="One referee judges on two threads. Nothing that it holds may grow.",
        reduce=_growth,
        rows=_growth_rows,
    ),
)
