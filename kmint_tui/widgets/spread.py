"""How times are spread: a line of blocks for each that was timed, over one axis, from the deciles in a verdict's timing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from textual.widgets import Static

from kmint_tui.widgets.bars import NAMES, in_order

WIDTH = 48
_BLOCKS = " ▁▂▃▄▅▆▇█"
_TAIL = 0.1
"""Share of the range between the ends that are shown which is added on both sides."""


def density(deciles: Sequence[float], low: float, high: float, width: int) -> list[float]:
    """The share of all times in each of `width` equal parts of low to high; between two deciles they are taken as even."""
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


def spread(timing: Mapping[str, Any], width: int = WIDTH) -> list[str]:
    """Lines of markup: each contender's times between its slowest and fastest tenth, and the axis. Empty without deciles."""
    device = dict(timing.get("device") or {})
    known = {name: [float(time) for time in device[name].get("deciles") or ()] for name in in_order(device)}
    known = {name: deciles for name, deciles in known.items() if len(deciles) > 2}
    if not known:
        return []
    # The outermost tenths have long tails, which would leave no room for the rest.
    low, high = min(deciles[1] for deciles in known.values()), max(deciles[-2] for deciles in known.values())
    around = _TAIL * (high - low) or 0.05 * high
    low, high = low - around, high + around
    lines = []
    for name, deciles in known.items():
        shares = density(deciles, low, high, width)
        top = max(shares) or 1.0
        blocks = "".join(_BLOCKS[min(8, -(-round(800 * share / top) // 100))] for share in shares)
        colour = "$success" if name == "candidate" else "$text-muted" if name == "floor" else "$secondary"
        summary = device[name]
        shown = f"{summary['p10']:.1f} to {summary['p90']:.1f}" if "p10" in summary else ""
        lines.append(f"{NAMES.get(name, name):<14.14} [{colour}]{blocks}[/] {shown:>16}")
    axis = f"{low:.1f} us"
    lines.append(f"{'':<14} [$text-muted]{axis}{f'{high:.1f} us':>{width - len(axis)}}[/] {'10 % to 90 %':>16}")
    return lines


class Spread(Static):
    """Empty where there is nothing to show."""

    def show(self, timing: Mapping[str, Any] | None) -> None:
        """Show the spread of a verdict's device times, how many there are, and what disturbed them."""
        lines = spread(timing) if timing else []
        if lines and timing:
            rounds = timing.get("rounds")
            dropped = timing.get("dropped_rounds") or 0
            lines.append(f"\n{rounds} rounds" + (f", {dropped} dropped: {_said(timing.get('dropped') or {})}" if dropped else ""))
            lines += [_escaped(f"the GPU was shared with {one}") for one in timing.get("neighbours") or ()]
            lines += [_escaped(str(note)) for note in timing.get("notes") or ()]
        self.update("\n".join(lines))


def _said(dropped: Mapping[str, Any]) -> str:
    return _escaped(", ".join(f"{reason} {count}" for reason, count in dropped.items()))


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")
