"""Converting: time and memory of an adapter and its base becoming one GGUF."""

from __future__ import annotations

from statistics import mean

from bench.claims.claim import Claim, Figures, Raw, Rows


def _against_peft(raw: Raw) -> Figures:
    theirs = [(run["merge"], run["convert"]) for run in raw["peft_then_converter"]]
    return {
        "shape": raw["shape"],
        "kmint": {
            "seconds": round(mean(run["seconds"] for run in raw["kmint"]), 1),
            "own_mb": max(run["peak_anonymous_mb"] for run in raw["kmint"]),
            "resident_mb": max(run["peak_resident_mb"] for run in raw["kmint"]),
        },
        "peft_then_converter": {
            "seconds": round(
                mean(merge["seconds"] + convert["seconds"] for merge, convert in theirs), 1
            ),
            "own_mb": max(part["peak_anonymous_mb"] for run in theirs for part in run),
            "resident_mb": max(part["peak_resident_mb"] for run in theirs for part in run),
        },
        "tensors": {
            name: raw["tensors"][name]
            for name in ("elements", "ours_not_rounded_once", "unexplained")
        },
    }


def _against_peft_rows(figures: Figures) -> Rows:
    ours, theirs = figures["kmint"], figures["peft_then_converter"]
    wrong = figures["tensors"]["ours_not_rounded_once"]

    def both(name: str, digits: int = 0) -> str:
        return f"{ours[name]:,.{digits}f} against {theirs[name]:,.{digits}f}"

    return {
        "Seconds, kmint against PEFT's merge and llama.cpp's converter": both("seconds", 1),
        "Memory of its own, MB": both("own_mb"),
        "All resident memory, MB": both("resident_mb"),
        "Elements not rounded exactly once": f"{wrong} of {figures['tensors']['elements']:,}",
    }


def _whole(raw: Raw) -> Figures:
    layers, run = max(
        ((int(layers), run) for layers, run in raw["runs"].items()), key=lambda pair: pair[0]
    )
    return {
        "layout": raw["layout"],
        "layers": layers,
        "seconds": run["seconds"],
        "peak_resident_mb": run["peak_resident_mb"],
        "disk_bytes": raw["extrapolated"]["disk_bytes"],
    }


def _whole_rows(figures: Figures) -> Rows:
    return {
        "Seconds": f"{figures['seconds']:.0f}",
        "Resident memory, MB": f"{figures['peak_resident_mb']:.0f}",
        "File, GB": f"{figures['disk_bytes'] / 1e9:.1f}",
    }


CONVERTING = (
    Claim(
        name="convert_vs_peft",
        title="Converting a 1B model and its adapter",
        script="python bench/convert_vs_peft.py --json RAW.json",
        schema="kmint.bench.convert_vs_peft/1",
        about="A model of the MiniCPM5-1B shape with a rank-64 adapter becomes an F16 GGUF.",
        reduce=_against_peft,
        rows=_against_peft_rows,
    ),
    Claim(
        name="convert_27b",
        title="Converting the layout of Qwen3.6-27B",
        script="python bench/convert_27b.py --json RAW.json",
        schema="kmint.bench.convert_27b/1",
        about=(
            "All 64 layers with a rank-128 adapter, to Q8_0. Most weights are zeros, because "
            "only the layout counts here."
        ),
        reduce=_whole,
        rows=_whole_rows,
    ),
)
