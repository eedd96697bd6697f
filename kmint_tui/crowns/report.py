"""Crowns as a report: Markdown with bars of text, or one HTML file that loads nothing.

Each device with its versions has its own section, because times of two sections cannot be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby

from kmint_tui.crowns.records import Reign
from kmint_tui.escapes import visible

_BAR = 30
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 "
    "1rem}table{border-collapse:collapse;width:100%}"
    "td,th{text-align:left;padding:.25rem .6rem;border-bottom:1px solid "
    "#8884}td.n{text-align:right;font-variant-numeric:tabular-nums}"
    "rect{fill:#3a7}svg{display:block}"
)

Section = tuple[str, list[Reign]]


def sections(reigns: Sequence[Reign]) -> list[Section]:
    """The present reigns by device and versions, the largest gain first."""
    present = sorted((reign for reign in reigns if reign.ended is None), key=_place)
    return [
        (title, sorted(group, key=lambda reign: -reign.ratio))
        for title, group in groupby(present, key=_place)
    ]


def markdown(reigns: Sequence[Reign]) -> str:
    """The report as Markdown."""
    lines = [
        "# Crowns",
        "",
        "Times are device time with a cold L2 cache; the ratio is to the fastest baseline of the "
        "same run.",
        "",
    ]
    for title, group in sections(reigns):
        most = max(reign.ratio for reign in group)
        lines += [
            f"## {_cell(title)}",
            "",
            "| op | cell | us | ratio | | against | draft | model | since |",
        ]
        lines.append("|---|---|--:|--:|---|---|---|---|---|")
        for reign in group:
            bar = "█" * max(1, round(_BAR * reign.ratio / most))
            figures = (f"{reign.device_us:.1f}", f"{reign.ratio:.3f}x", bar, reign.bar)
            row = (
                reign.crown.op,
                reign.crown.cell,
                *figures,
                reign.draft,
                reign.model,
                reign.began[:10],
            )
            lines.append("| " + " | ".join(map(_cell, row)) + " |")
        lines.append("")
    lines += _changes(reigns)
    return visible("\n".join(lines))


def html(reigns: Sequence[Reign]) -> str:
    """The report as one self-contained HTML page."""
    parts = [
        '<!doctype html><html lang="en"><meta '
        f'charset="utf-8"><title>Crowns</title><style>{_STYLE}</style><h1>Crowns</h1>'
    ]
    parts.append(
        "<p>Times are device time with a cold L2 cache; the ratio is to the fastest baseline of "
        "the same run.</p>"
    )
    for title, group in sections(reigns):
        most = max(reign.ratio for reign in group)
        parts.append(
            f"<h2>{escape(title)}</h2><table><tr><th>op<th>cell<th>us<th>ratio<th><th>against<th>draft<th>model<th>since</tr>"
        )
        for reign in group:
            width = max(1, round(160 * reign.ratio / most))
            bar = (
                f'<svg width="160" height="12" role="img" aria-label="{reign.ratio:.3f}"><rect '
                f'width="{width}" height="12"/></svg>'
            )
            parts.append(
                f"<tr><td>{escape(reign.crown.op)}<td>{escape(reign.crown.cell)}"
                f"<td class=n>{reign.device_us:.1f}<td class=n>{reign.ratio:.3f}x"
                f"<td>{bar}<td>{escape(reign.bar)}<td>{escape(reign.draft)}<td>{escape(reign.model)}<td>{escape(reign.began[:10])}</tr>"
            )
        parts.append("</table>")
    changes = _changes(reigns)
    if changes:
        items = "".join(
            f"<li>{escape(line.removeprefix('- '))}</li>"
            for line in changes
            if line.startswith("- ")
        )
        parts.append(f"<h2>Changes of hands</h2><ul>{items}</ul>")
    return visible("".join(parts)) + "</html>\n"


def _place(reign: Reign) -> str:
    return f"{reign.crown.device}, torch {reign.crown.torch}, triton {reign.crown.triton}"


def _cell(text: str) -> str:
    """Text that stays within its cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _changes(reigns: Sequence[Reign]) -> list[str]:
    won = [reign for reign in sorted(reigns, key=lambda reign: reign.began) if reign.duel]
    if not won:
        return []
    lines = ["## Changes of hands", ""]
    for reign in won:
        duel = reign.duel or {}
        lines.append(
            f"- {reign.began[:10]}: {_cell(reign.crown.op)} on {_cell(reign.crown.device)} to "
            f"{_cell(reign.draft)},"
            f" {duel['ratio']:.3f}x as fast as its holder ({duel['low']:.3f} to "
            f"{duel['high']:.3f}, {duel['rounds']} rounds)"
        )
    return [*lines, ""]
