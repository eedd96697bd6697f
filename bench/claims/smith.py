"""The smith: how fast it drafts, and how expert iteration changes its drafts."""

from __future__ import annotations

from typing import Any

from bench.claims.claim import Claim, Figures, Raw, Rows, percent, times

_PEERS = {
    "kmint": "kmint",
    "llama": "`Llama` of llama-cpp-python",
    "transformers": "`generate` of transformers",
    "batched-bench": "llama.cpp's own benchmark",
}


def _decoding(raw: Raw) -> Figures:
    return {
        "model": raw["model"],
        "figures": [
            {
                "peer": one["peer"],
                "drafts": one["drafts"],
                "tokens_a_second": round(one["decode_rate"], 1),
                "cancel_ms": round(1000 * one["cancel"], 1) if one["peer"] == "kmint" else None,
            }
            for one in raw["figures"]
        ],
    }


def _decoding_rows(figures: Figures) -> Rows:
    rows: dict[str, list[str]] = {}
    for one in figures["figures"]:
        rows.setdefault(_PEERS[one["peer"]], []).append(
            f"{one['tokens_a_second']:,.0f} ({one['drafts']})"
        )
    cancels = [one["cancel_ms"] for one in figures["figures"] if one["cancel_ms"] is not None]
    text = {f"{peer}: tokens a second (drafts)": ", ".join(cells) for peer, cells in rows.items()}
    return text | {"Longest of five cancels, ms": f"{max(cancels):.1f}"}


_OF_A_MODEL = ("drafts", "judged", "right", "share_right", "share_with_kernel", "speed", "speed_of_right")  # fmt: skip


def _iteration(raw: Raw) -> Figures:
    models, rounds = raw["evaluations"], raw["rounds"]
    return {
        "samples": raw["settings"]["samples"],
        "places": raw["places"],
        "heldout": raw["heldout"],
        "no_times": raw["environment"]["no_times"],
        "heldout_models": [_drafted(one) for one in models],
        "faster": models[-1]["change"]["faster"] if len(models) > 1 else None,
        "rounds": [
            {
                **_drafted(one),
                "kept": one["kept"],
                "steps": one["training"]["steps"],
                "own": one["training"]["own"],
                "replayed": one["training"]["replayed"],
            }
            for one in rounds
        ],
    }


def _drafted(one: dict[str, Any]) -> dict[str, Any]:
    return {name: one[name] for name in _OF_A_MODEL}


def _iteration_rows(figures: Figures) -> Rows:
    rounds, models = figures["rounds"], figures["heldout_models"]
    first, last = models[0], models[-1]
    rows = {
        "Rounds, places to learn, held-out places": (
            f"{len(rounds)}, {len(figures['places'])}, {len(figures['heldout'])}"
        ),
        "Right of the judged drafts of each round": ", ".join(
            f"{one['right']} of {one['judged']}" for one in rounds
        ),
        "Kernels kept, training steps of each round": ", ".join(
            f"{one['kept']} and {one['steps']}" for one in rounds
        ),
        "Held-out drafts that are right, before and after": (
            f"{first['right']} of {first['judged']}, {last['right']} of {last['judged']}"
        ),
        "Held-out operations with a kernel, before and after": (
            f"{percent(first['share_with_kernel'])}, {percent(last['share_with_kernel'])}"
        ),
    }
    label = "Held-out kernels against the fastest baseline, before and after"
    if figures["no_times"] is not None or None in (first["speed"], last["speed"]):
        return rows | {label: "not measured"}
    return rows | {
        f"{label}: the fastest of a place": f"{times(first['speed'])}, {times(last['speed'])}",
        f"{label}: the mean right draft": (
            f"{times(first['speed_of_right'])}, {times(last['speed_of_right'])}"
        ),
    }


SMITH = (
    Claim(
        name="decode",
        title="Decoding a 1B model",
        script="python bench/decode.py --json RAW.json",
        schema="kmint.bench.decode/2",
        about=(
            "A Q8_0 model of the MiniCPM5-1B shape with random weights. All drafts share one "
            "prompt. Sampling is included."
        ),
        reduce=_decoding,
        rows=_decoding_rows,
    ),
    Claim(
        name="expert_iteration",
        title="Expert iteration of the embedded smith",
        script=(
            "python -m forge.iterate --home build/forge/iterate --ops softmax "
            "--shapes 32768x512 8192x4096 --heldout-ops layernorm_silu --samples 2 --seed 1 "
            "--device cpu --threads 1 --batch-tokens 2048 --most-steps 4 --json RAW.json"
        ),
        schema="kmint.forge.iterate/1",
        about=(
            "A small run that shows the parts at work and the figures of a round; `forge/README.md` "
            "has the rules. A run on a processor says right or wrong and nothing about speed."
        ),
        reduce=_iteration,
        rows=_iteration_rows,
    ),
)
