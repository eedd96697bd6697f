"""A grid as a heat map, in text and as SVG: ratios to the fastest baseline, with losses marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from referee.grid import GridPoint, summarise

MARKS = {"win": "+", "tie": "=", "loss": "-", "unsure": "?", "rejected": "x", "error": "!"}
CELL_WIDTH, CELL_HEIGHT, LEFT, TOP = 118, 44, 120, 64


def text_map(points: Sequence[GridPoint]) -> str:
    """One line for each shape, one column for each dtype: ratio and mark.

    The marks are + win, = tie, - loss, ? unsure, x rejected, ! error.
    """
    dtypes, shapes, table = _table(points)
    lines = ["".join(["rows x columns".ljust(16), *(dtype.rjust(16) for dtype in dtypes)])]
    for shape in shapes:
        found = [table.get((shape, dtype)) for dtype in dtypes]
        texts = (cell_text(point).rjust(16) for point in found)
        lines.append("".join([f"{shape[0]} x {shape[1]}".ljust(16), *texts]))
    return "\n".join([*lines, "", *summary_lines(points)])


def summary_lines(points: Sequence[GridPoint]) -> list[str]:
    """One line with all wins and losses, then a line for every losing cell."""
    summary = summarise(points)
    counts = ", ".join(
        f"{summary.counts[decision]} {decision}" for decision in MARKS if decision in summary.counts
    )
    mean = (
        "nothing timed"
        if summary.geomean is None
        else f"geometric mean {summary.geomean:.3f}x over {summary.timed} timed cells"
    )
    losing = len(summary.losing)
    first = f"wins at {summary.counts.get('win', 0)} and loses at {losing} of {summary.cells} cells ({counts}); {mean}"
    return [first, *(f"losing: {describe(point)}" for point in summary.losing)]


def svg(points: Sequence[GridPoint], title: str) -> str:
    """The heat map as an SVG document; green is faster than the fastest baseline, red slower."""
    dtypes, shapes, table = _table(points)
    width, height = LEFT + CELL_WIDTH * len(dtypes) + 16, TOP + CELL_HEIGHT * len(shapes) + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="24" font-size="15" fill="#111111">{escape(title)}</text>',
    ]
    for column, dtype in enumerate(dtypes):
        parts.append(_label(LEFT + CELL_WIDTH * (column + 0.5), TOP - 10, dtype))
    for row, shape in enumerate(shapes):
        parts.append(
            _label(LEFT / 2, TOP + CELL_HEIGHT * (row + 0.5) + 5, f"{shape[0]} x {shape[1]}")
        )
        for column, dtype in enumerate(dtypes):
            point = table.get((shape, dtype))
            x, y = LEFT + CELL_WIDTH * column, TOP + CELL_HEIGHT * row
            tip = escape(describe(point)) if point else "not measured"
            parts.append(
                f'<g><title>{tip}</title><rect x="{x}" y="{y}" width="{CELL_WIDTH - 4}" height="{CELL_HEIGHT - 4}" '
                f'fill="{_colour(point)}"/>{_label(x + CELL_WIDTH / 2 - 2, y + CELL_HEIGHT / 2 + 3, cell_text(point))}</g>'
            )
    return "\n".join([*parts, "</svg>", ""])


def _table(
    points: Sequence[GridPoint],
) -> tuple[list[str], list[tuple[int, int]], dict[tuple[tuple[int, int], str], GridPoint]]:
    table = {((point.rows, point.columns), point.dtype): point for point in points}
    return (
        list(dict.fromkeys(point.dtype for point in points)),
        list(dict.fromkeys(shape for shape, _ in table)),
        table,
    )


def cell_text(point: GridPoint | None) -> str:
    """Ratio and mark of one cell, or its outcome."""
    if point is None:
        return "not measured"
    mark = MARKS.get(point.decision, point.decision)
    return f"{point.decision} {mark}" if point.ratio is None else f"{point.ratio:.3f} {mark}"


def describe(point: GridPoint) -> str:
    """One cell in a line: shape, ratio with interval and baseline, kernel time; or the reason."""
    place = f"{point.rows} x {point.columns} {point.dtype}: {point.decision}"
    if point.ratio is None or point.low is None or point.high is None:
        return f"{place}, {point.reason}" if point.reason else place
    return f"{place}, {point.ratio:.3f} ({point.low:.3f} to {point.high:.3f}) of {point.bar}, {point.candidate_us or 0:.1f} us"


def _colour(point: GridPoint | None) -> str:
    """White at ratio 1, full green at 2, full red at 0.5 or for a failure, grey for unknown."""
    if point is None or (point.ratio is None and not point.loses):
        return "#d0d0d0"
    if point.ratio is None:
        return "#ff6969"
    strength = max(-1.0, min(1.0, math.log2(point.ratio)))
    faded = round(255 - 150 * abs(strength))
    return f"#{faded:02x}ff{faded:02x}" if strength >= 0 else f"#ff{faded:02x}{faded:02x}"


def _label(x: float, y: float, text: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle" fill="#111111">{escape(text)}</text>'
