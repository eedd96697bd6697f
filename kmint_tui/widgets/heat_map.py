"""A grid as a heat map: shapes down, dtypes across. Each cell has its ratio, its mark and a colour
for the size of its win or loss.

The mark says the same as the colour, so the map can be read without colours. The marks are + win,
= tie, - loss, ? unsure, x rejected, ! error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.widgets import DataTable

from kmint_tui.widgets.table import MOVE
from kmint_tui.widgets.themes import theme_of
from referee.grid import GridPoint
from referee.grid_picture import cell_text

Shape = tuple[int, int]
WIDTH = 18
LOW_SCREEN = 30
"""Number of lines of a screen below which a cell has one line."""
FULL = 1.0
"""Smallest |log2 ratio| with the strongest colour: twice or half as fast."""
FAINTEST, STRONGEST = 0.18, 0.75


class HeatMap(DataTable[Any]):
    """The cursor goes from cell to cell; `point` is the one under it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "h",
            "cursor_left",
            "Left",
            show=False,
            id="grid.left",
            tooltip="Cell to the left",
            group=MOVE,
        ),
        Binding(
            "l",
            "cursor_right",
            "Right",
            show=False,
            id="grid.right",
            tooltip="Cell to the right",
            group=MOVE,
        ),
        Binding(
            "j", "cursor_down", "Down", show=False, id="grid.down", tooltip="Cell below", group=MOVE
        ),
        Binding("k", "cursor_up", "Up", show=False, id="grid.up", tooltip="Cell above", group=MOVE),
    ]

    def __init__(self, name: str) -> None:
        super().__init__(
            id=name, cursor_type="cell", cell_padding=0, zebra_stripes=False, fixed_columns=1
        )
        self._points: dict[tuple[Shape, str], GridPoint] = {}
        self._shapes: list[Shape] = []
        self._dtypes: list[str] = []

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(
            self, lambda _: self.show(tuple(self._points.values()), self._shapes, self._dtypes)
        )

    @property
    def point(self) -> GridPoint | None:
        """The cell under the cursor; None on a shape's name and where nothing was measured."""
        row, column = self.cursor_coordinate
        if not (0 <= row < len(self._shapes) and 1 <= column <= len(self._dtypes)):
            return None
        return self._points.get((self._shapes[row], self._dtypes[column - 1]))

    def show(
        self, points: Sequence[GridPoint], shapes: Sequence[Shape] = (), dtypes: Sequence[str] = ()
    ) -> None:
        """Show these cells. `shapes` and `dtypes` name cells that are still to be measured."""
        before, shape_before = self.cursor_coordinate, (self._shapes, self._dtypes)
        self._points = {((point.rows, point.columns), point.dtype): point for point in points}
        self._shapes = list(dict.fromkeys((*shapes, *(shape for shape, _ in self._points))))
        self._dtypes = list(dict.fromkeys((*dtypes, *(dtype for _, dtype in self._points))))
        self.clear(columns=True)
        self.add_column("rows x columns", width=15, key="shape")
        for dtype in self._dtypes:
            self.add_column(Text(dtype.center(WIDTH)), width=WIDTH, key=dtype)
        for shape in self._shapes:
            cells = [self._cell(self._points.get((shape, dtype))) for dtype in self._dtypes]
            self.add_row(
                Text(f"{shape[0]} x {shape[1]}"),
                *cells,
                height=1 if self._low else 2,
                key=f"{shape[0]}x{shape[1]}",
            )
        same = shape_before == (self._shapes, self._dtypes)
        self.move_cursor(row=before.row if same else 0, column=max(1, before.column) if same else 1)

    def go_to(self, point: GridPoint) -> None:
        """Put the cursor on this cell."""
        self.move_cursor(
            row=self._shapes.index((point.rows, point.columns)),
            column=1 + self._dtypes.index(point.dtype),
        )

    @property
    def _low(self) -> bool:
        return self.app.size.height < LOW_SCREEN

    def _cell(self, point: GridPoint | None) -> Text:
        time = (
            f"{point.candidate_us:.1f} us"
            if point is not None and point.candidate_us is not None
            else ""
        )
        lines = [f"{cell_text(point)}  {time}".strip()] if self._low else [cell_text(point), time]
        text = Text("\n".join(line.center(WIDTH) for line in lines), no_wrap=True)
        colour = self._colour(point)
        if colour is not None:
            theme = theme_of(self.app)
            foreground = Color.parse(theme.foreground or "white")
            text.stylize(
                f"{'bold ' if point is not None and point.loses else ''}{foreground.hex} on {colour.hex}"
            )
        else:
            text.stylize("dim")
        return text

    def _colour(self, point: GridPoint | None) -> Color | None:
        """The background of a cell; None for the plain one.

        A win or loss has more of the success or error colour the farther its ratio is from 1. A tie
        or an unsure cell has a faint secondary colour. A losing cell without a ratio has the
        strongest error colour.
        """
        theme = theme_of(self.app)
        ground = Color.parse(theme.background or "black")
        if point is None or (point.ratio is None and not point.loses):
            return None
        if point.ratio is None:
            return ground.blend(Color.parse(theme.error or "red"), STRONGEST)
        strength = math.log2(point.ratio) / FULL
        share = FAINTEST + (STRONGEST - FAINTEST) * min(1.0, abs(strength))
        towards = theme.success if strength >= 0 else theme.error
        if point.decision in ("tie", "unsure"):
            towards, share = theme.secondary, FAINTEST
        return ground.blend(Color.parse(towards or "white"), share)
