"""The spread of times: a line of blocks for each contender, over one axis, from the deciles in a
verdict's timing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from textual.content import Content
from textual.widgets import Static

from kmint_tui.widgets.bars import NAMES, in_order

WIDTH = 48
_BLOCKS = " ▁▂▃▄▅▆▇█"
_TAIL = 0.1
"""Share of the range between the outermost shown deciles, added on both sides of the axis."""


def density(deciles: Sequence[float], low: float, high: float, width: int) -> list[float]:
    """The share of all times in each of `width` equal parts of low to high. The times between
    two deciles count as even.
    """
    edges = [low + (high - low) * place / width for place in range(width + 1)]
    shares = [_share_below(deciles, edge) for edge in edges]
    return [after - before for before, after in zip(shares, shares[1:], strict=False)]


def _share_below(deciles: Sequence[float], time: float) -> float:
    if time <= deciles[0]:
        return 0.0
    step = 1 / (len(deciles) - 1)
    for place, (before, after) in enumerate(zip(deciles, deciles[1:], strict=False)):
        if time < after:
            return step * (place + (time - before) / (after - before))
    return 1.0


def spread(timing: Mapping[str, Any], width: int = WIDTH) -> list[Content]:
    """A line for each contender with its times between its slowest and fastest tenth, and the axis.
    Empty without deciles."""
    device = dict(timing.get("device") or {})
    known = {
        name: [float(time) for time in device[name].get("deciles") or ()]
        for name in in_order(device)
    }
    known = {name: deciles for name, deciles in known.items() if len(deciles) > 2}
    if not known:
        return []
    # The outermost tenths have long tails, which would leave no room for the rest.
    low, high = (
        min(deciles[1] for deciles in known.values()),
        max(deciles[-2] for deciles in known.values()),
    )
    around = _TAIL * (high - low) or 0.05 * high
    low, high = low - around, high + around
    lines = []
    for name, deciles in known.items():
        shares = density(deciles, low, high, width)
        top = max(shares) or 1.0
        blocks = "".join(_BLOCKS[min(8, -(-round(800 * share / top) // 100))] for share in shares)
        colour = (
            "$success"
            if name == "candidate"
            else "$text-muted"
            if name == "floor"
            else "$secondary"
        )
        summary = device[name]
        shown = (
            f"{summary['p10']:.1f} to {summary['p90']:.1f}"
            if "p10" in summary and "p90" in summary
            else ""
        )
        lines.append(
            Content.assemble(f"{NAMES.get(name, name):<14.14} ", (blocks, colour), f" {shown:>16}")
        )
    begin = f"{low:.1f} us"
    axis = begin + f"{high:.1f} us".rjust(width - len(begin))
    lines.append(Content.assemble(" " * 15, (axis, "$text-muted"), f" {'10 % to 90 %':>16}"))
    return lines


class Spread(Static):
    """A picture of the spread; empty for a verdict without times."""

    def show(self, timing: Mapping[str, Any] | None) -> None:
        """Show the spread of a verdict's device times, its number of rounds, its disturbances; of
        several shapes one after the other.
        """
        several = (timing or {}).get("shapes") or ()
        if not several:
            self.update(Content("\n").join(_with_notes(timing) if timing else []))
            return
        lines = list[Content]()
        for one in several:
            if found := _with_notes(one):
                lines += [Content.styled(str(one.get("cell")), "$primary"), *found, Content("")]
        self.update(Content("\n").join(lines))


def _with_notes(timing: Mapping[str, Any]) -> list[Content]:
    """The spread at one shape, with its number of rounds and its disturbances."""
    lines = spread(timing)
    if not lines:
        return []
    rounds, dropped = timing.get("rounds"), timing.get("dropped_rounds") or 0
    why = f", {dropped} dropped: {_reason_counts(timing.get('dropped') or {})}" if dropped else ""
    notes = [
        f"\n{rounds} rounds{why}",
        *(f"the GPU was shared with {one}" for one in timing.get("neighbours") or ()),
        *(str(note) for note in timing.get("notes") or ()),
    ]
    return [*lines, *map(Content, notes)]


def _reason_counts(dropped: Mapping[str, Any]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in dropped.items())
