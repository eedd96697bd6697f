"""Peers side by side: device times, shares of the floor, seconds to a kernel, and verdicts on the
Triton that compilers emitted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from bench.claims.claim import Claim, Figures, Raw, Rows, quantile, times

LONGEST = 150
"""Characters of a reason in a table."""
KMINT = "kmint"
_DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}


def _reduce(raw: Raw) -> Figures:
    found = raw["places"]
    peers = list(dict.fromkeys(peer for place in found for peer in place["rows"]))
    rows = [(place, peer, row) for place in found for peer, row in place["rows"].items()]
    absent = {peer: Counter(_reasons(found, peer)) for peer in peers}
    return {
        "peers": peers,
        "planned": raw["planned"],
        "tuning_seconds": raw["tuning_seconds"],
        "places": [
            {
                "place": _name(place),
                "floor": place.get("floor_us"),
                "us": [place["rows"].get(peer, {}).get("device_us") for peer in peers],
            }
            for place in found
        ],
        "unusable": {_name(place): _cut(place["reason"]) for place in found if "reason" in place},
        "seconds": {peer: _median(_seconds(found, peer)) for peer in peers},
        "right": {peer: sum(row.get("right") is True for _, p, row in rows if p == peer) for peer in peers},
        "wrong": [
            f"{peer}, {_name(place)}: {_cut(row.get('detail', ''))}"
            for place, peer, row in rows
            if row.get("right") is False
        ],
        "absent": {peer: dict(counts) for peer, counts in absent.items() if counts},
        "verdicts": [
            {"op": one["op"], "peer": one["peer"], "line": _cut(one.get("line") or one["reason"])}
            for one in raw["emitted"]
            if "line" in one or "reason" in one
        ],
    }  # fmt: skip


def _name(place: Raw) -> str:
    shape, _, dtype = place["shape"].partition(":")
    return f"{place['op']} {shape} {_DTYPES.get(dtype, dtype)}"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."


def _reasons(places: Iterable[Raw], peer: str) -> list[str]:
    """Why a peer has no time, place by place."""
    rows = [place["rows"].get(peer, {}) for place in places]
    return [_cut(row["reason"]) for row in rows if "reason" in row and not row.get("device_us")]


def _seconds(places: Iterable[Raw], peer: str) -> list[float]:
    """The seconds to a peer's first right answers of an operation in a process."""
    rows = [place["rows"].get(peer, {}) for place in places]
    return [row["seconds"] for row in rows if row.get("cold") and row.get("right")]


def _median(values: list[float]) -> float | None:
    return round(quantile(values, 0.5), 2) if values else None


def _rows(figures: Figures) -> Rows:
    peers, found = figures["peers"], figures["places"]
    timed = [one for one in found if any(one["us"])]
    rows = {"Places timed, planned": f"{len(timed)}, {figures['planned']}"}
    for number, peer in enumerate(peers):
        if text := _against(found, number, peers):
            rows[f"{peer}: places, share of the floor (median), against kmint"] = text
    rows |= {f"{one['place']}, us (share of the floor)": _times(one, peers) for one in timed}
    rows |= {f"{place}: not timed": why for place, why in figures["unusable"].items()}
    rows["Seconds from the operation's name to the first answer, median"] = ", ".join(
        f"{peer} {value:.1f}" for peer, value in figures["seconds"].items() if value is not None
    ) or "none"  # fmt: skip
    rows["Right answers"] = ", ".join(f"{peer} {count}" for peer, count in figures["right"].items())
    rows["Wrong answers, which are timed too"] = "; ".join(figures["wrong"]) or "none"
    for peer, reasons in figures["absent"].items():
        rows[f"{peer}: no time, and the reason"] = "; ".join(
            f"{why} ({count} places)" for why, count in reasons.items()
        )
    verdicts: dict[str, list[str]] = {}
    for one in figures["verdicts"]:
        verdicts.setdefault(one["peer"], []).append(f"{one['op']}: {one['line']}")
    for peer, lines in verdicts.items():
        rows[f"The referee on the Triton of {peer}, for dynamic shapes"] = "; ".join(lines)
    return rows


def _against(places: list[dict[str, Any]], number: int, peers: list[str]) -> str:
    """How a peer does over all places where it has a time."""
    shares = [one["floor"] / us for one in places if (us := one["us"][number]) and one["floor"]]
    if not shares:
        return ""
    text = f"{len(shares)}, {quantile(shares, 0.5):.2f}"
    if KMINT not in peers or peers[number] == KMINT:
        return text
    mine = peers.index(KMINT)
    both = [(one["us"][mine], one["us"][number]) for one in places]
    logs = [math.log(theirs / ours) for ours, theirs in both if ours and theirs]
    if not logs:
        return text
    faster = sum(value > 0 for value in logs)
    return f"{text}, {times(math.exp(sum(logs) / len(logs)))} as long as kmint's ({faster} of {len(logs)} slower)"


def _times(one: dict[str, Any], peers: list[str]) -> str:
    """The times of a place, the shortest first."""
    known = sorted((us, peer) for us, peer in zip(one["us"], peers, strict=True) if us)
    return ", ".join(
        f"{peer} {us:.1f} ({one['floor'] / us:.2f})" if one["floor"] else f"{peer} {us:.1f}"
        for us, peer in known
    )


PEERS = Claim(
    name="peers",
    title="Peers side by side",
    script="python bench/peers.py --json RAW.json",
    schema="kmint.bench.peers/1",
    about=(
        "kmint's kernels with those of Liger, Helion and PyTorch, by the protocol of a verdict. kmint's"
        " are those of the book; the seconds are those of a kernel that is there, not of minting it. Every"
        " first answer is compared with float64. Emitted Triton is judged by `kmint judge`."
    ),
    reduce=_reduce,
    rows=_rows,
)
"""It joins `CLAIMS` with its first result."""
