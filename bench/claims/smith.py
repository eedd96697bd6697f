"""The smith: how fast it drafts."""

from __future__ import annotations

from bench.claims.claim import Claim, Figures, Raw, Rows

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
)
