"""From an accepted kernel and its timing to an entry of a book."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmint_tui import __version__
from kmint_tui.book.records import Entry, Figures, Place, digest
from referee.timing.measurement import BARS, CANDIDATE
from referee.versions import compiler_name, describe_host

if TYPE_CHECKING:
    from kmint_tui.core.book.contest import Contender
    from referee.verdict import Verdict

ROOT = Path(__file__).resolve().parents[3]


def entry_of(
    place: Place, contender: Contender, verdict: Verdict, timing: Mapping[str, Any]
) -> Entry:
    """The entry of a kernel that the referee accepted and timed."""
    return Entry(
        op=place.op,
        shape=place.shape,
        dtype=place.dtype,
        source_sha256=digest(contender.source),
        author=contender.author,
        smith=contender.smith,
        smith_sha256=contender.smith_sha256,
        changes=contender.changes[:300],
        figures=figures_of(timing),
        versions=versions_of(verdict, timing),
        commit=commit(),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def figures_of(timing: Mapping[str, Any]) -> Figures:
    """The figures of one case's timing, which has a ratio."""
    interval, device = timing["ratio"], timing.get("device") or {}
    return Figures(
        verdict=str(timing.get("decision", "unsure")),
        ratio=float(interval["ratio"]),
        low=_finite(interval.get("low")),
        high=_finite(interval.get("high")),
        bar=str(timing.get("bar")),
        us=float(device[CANDIDATE]["median"]),
        floor_share=_finite(timing.get("floor_share")),
        baselines={name: float(device[name]["median"]) for name in BARS if name in device},
    )


def versions_of(verdict: Verdict, timing: Mapping[str, Any]) -> dict[str, str]:
    """The versions that the figures depend on."""
    from kmint_tui.save.receipt import referee_identity

    known = {**(timing.get("environment") or {}), **verdict.environment}
    torch, triton = versions_here()
    found = {
        "kmint": __version__,
        "referee": referee_identity()["sha256"][:12],
        "torch": torch,
        "triton": triton,
        "driver": known.get("cuda_driver"),
    }
    return {name: str(value) for name, value in found.items() if value}


def versions_here() -> tuple[str | None, str | None]:
    """The versions of torch and Triton, as entries have them."""
    host = describe_host()
    torch = host["torch"]
    return (str(torch) if torch else None), compiler_name(host) if host["triton"] else None


@functools.cache
def commit() -> str:
    """The commit of the checkout that kmint runs from; empty for an installed kmint."""
    try:
        return _commit(ROOT / ".git")[:12]
    except OSError:
        return ""


def _commit(git: Path) -> str:
    if git.is_file():
        git = Path(git.read_text(encoding="utf-8").partition("gitdir:")[2].strip())
    head = (git / "HEAD").read_text(encoding="utf-8").strip()
    name = head.partition("ref:")[2].strip()
    if not name:
        return head
    shared = git / "commondir"
    base = (git / shared.read_text(encoding="utf-8").strip()) if shared.exists() else git
    if (base / name).is_file():
        return (base / name).read_text(encoding="utf-8").strip()
    packed = (base / "packed-refs").read_text(encoding="utf-8").splitlines()
    return next((line.split()[0] for line in packed if line.endswith(f" {name}")), "")


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
