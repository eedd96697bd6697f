"""The stages that a draft passed, in the referee's order, from its verdict."""

from __future__ import annotations

from typing import Literal

from kmint_tui.history.store import PASSED

STAGES = ("screen", "trace", "compile", "correct", "honest")
Mark = Literal["pass", "fail", "busy", "open"]

SYMBOLS: dict[Mark, str] = {"pass": "✓", "fail": "✗", "busy": "…", "open": "·"}


def marks(outcome: str | None, stage: str | None) -> tuple[Mark, ...]:
    """One mark for each stage; a stage that the referee did not reach is open."""
    if outcome is None:
        return _all("open")
    if outcome in PASSED and stage not in STAGES:
        return _all("pass")
    reached = STAGES.index(stage) if stage in STAGES else len(STAGES)
    at: Mark = "pass" if outcome in PASSED else "fail"
    return tuple(
        "pass" if place < reached else at if place == reached else "open"
        for place in range(len(STAGES))
    )


def _all(mark: Mark) -> tuple[Mark, ...]:
    return tuple(mark for _ in STAGES)
