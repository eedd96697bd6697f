"""A verdict's timing as bars: the ratio at each shape, and the device time of the kernel, of each
baseline and of the floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from textual.content import Content
from textual.widgets import Static

from kmint_tui.core.shape_times import ByShape, by_shape, short_name

WIDTH, RATIO_WIDTH = 24, 22
"""Cells of the longest bar; a line with a ratio has to fit next to the code."""
COLOURS = {"win": "$success", "loss": "$warning"}
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


def ratio_bars(found: ByShape, width: int = RATIO_WIDTH) -> list[Content]:
    """One line for each shape, then the geometric mean, and the shapes at which the kernel loses.

    A bar reaches the mark `│` where the kernel is as fast as the fastest baseline.
    """
    longest = max((1.0, *(row.ratio for row in found.rows)))
    even = min(width - 1, round(width / longest))
    widest = max((len(short_name(row)) for row in found.rows), default=0)
    lines = []
    for row in found.rows:
        filled = max(1, round(width * row.ratio / longest))
        bar = "━" * filled + (" " * (even - filled) + "│" if filled <= even else "")
        colour = COLOURS.get(row.decision, "$secondary")
        name, ratio = f"{short_name(row):<{widest}} ", f" {row.ratio:6.3f}x "
        lines.append(
            Content.assemble(name, (f"{bar:<{width}}", colour), ratio, (row.decision, colour))
        )
    lines += [Content(f"{cell}: no ratio") for cell in found.missing]
    if found.mean is not None:
        lines.append(Content(f"geometric mean {found.mean:.3f}x"))
    if found.lost:
        lines.append(Content.styled(f"losses: {', '.join(found.lost)}", "$warning"))
    return lines


def _of_one(timing: Mapping[str, Any]) -> list[Content]:
    missing = [
        Content(f"{name}: missing ({reason})")
        for name, reason in dict(timing.get("missing") or {}).items()
    ]
    return [*bars(timing), *missing]


class TimeBars(Static):
    """Bars, or in one line why there are none."""

    def show(self, timing: Mapping[str, Any] | None, *, untimed: str) -> None:
        """Show a verdict's timing; `untimed` is said when there is none."""
        found = by_shape(timing)
        if timing is None or found is None:
            self.update(Content("\n").join((timing and _of_one(timing)) or [Content(untimed)]))
            return
        lines = ratio_bars(found)
        for one in timing["shapes"]:
            lines += [Content(""), Content.styled(str(one.get("cell")), "$primary"), *_of_one(one)]
        self.update(Content("\n").join(lines))
