"""The heat map of a measured grid in the terminal."""

from __future__ import annotations

from kmint_tui.cli.streams import Cell, Output, Table
from kmint_tui.core.grid import MeasuredGrid

STYLES = {
    "win": "green",
    "tie": "cyan",
    "unsure": "yellow",
    "loss": "red",
    "rejected": "red",
    "error": "red",
}


def show(out: Output, found: MeasuredGrid) -> None:
    """Write the heat map and its summary."""
    from referee.grid_picture import cell_text

    out.heading(found.title)
    if found.points:
        table = {point.place: point for point in found.points}
        dtypes = tuple(dict.fromkeys(point.dtype for point in found.points))
        rows: list[tuple[Cell | str, ...]] = []
        for shape in dict.fromkeys((point.rows, point.columns) for point in found.points):
            at = [table.get((*shape, dtype)) for dtype in dtypes]
            rows.append(
                (
                    f"{shape[0]} x {shape[1]}",
                    *(
                        Cell(cell_text(point), STYLES[point.decision] if point else "dim")
                        for point in at
                    ),
                )
            )
        out.table(Table(("rows x columns", *dtypes), rows, frozenset(dtypes)))
        out.text("")
    for line in found.summary_lines():
        out.text(line)
