"""Device time as bars: the kernel, each baseline and the floor, from a verdict's timing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from textual.content import Content
from textual.widgets import Static

WIDTH = 24
NAMES = {"candidate": "this kernel", "floor": "floor (copy)"}


def in_order(timed: Iterable[str]) -> list[str]:
    """The kernel first, then the baselines as they were timed, the floor last."""
    return sorted(timed, key=lambda name: (name != "candidate", name == "floor"))


def bars(timing: Mapping[str, Any], width: int = WIDTH) -> list[Content]:
    """One line for each that was timed, the kernel first, the floor last; the longest bar is
    `width` cells."""
    medians = {
        name: float(summary["median"]) for name, summary in dict(timing.get("device") or {}).items()
    }
    if not medians:
        return []
    longest = max(medians.values())
    lines = []
    for name in in_order(sorted(medians, key=lambda name: medians[name])):
        filled = max(1, round(width * medians[name] / longest)) if longest else 1
        colour = (
            "$success"
            if name == "candidate"
            else "$text-muted"
            if name == "floor"
            else "$secondary"
        )
        shown = NAMES.get(name, name)
        bar, rest = "━" * filled, f"{' ' * (width - filled)} {medians[name]:8.1f} us"
        lines.append(Content.assemble(f"{shown:<14.14} ", (bar, colour), rest))
    return lines


class TimeBars(Static):
    """Bars, or in one line why there are none."""

    def show(self, timing: Mapping[str, Any] | None, *, untimed: str) -> None:
        """Show a verdict's timing; `untimed` is said when there is none."""
        lines = bars(timing) if timing else []
        missing = [
            f"{name}: missing ({reason})"
            for name, reason in dict((timing or {}).get("missing") or {}).items()
        ]
        self.update(
            Content("\n").join([*lines, *map(Content, missing)]) if lines else Content(untimed)
        )
