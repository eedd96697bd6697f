"""A table of rows with keys, moved through with arrows or j and k."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import DataTable
from textual.widgets.data_table import CellDoesNotExist, RowDoesNotExist, RowKey

from kmint_tui.escapes import visible_line
from kmint_tui.widgets.themes import Styled, styled

MOVE = Binding.Group("Move")


class Table(DataTable[Any]):
    """Rows are known by a key, so that the cursor stays on its row when the content is renewed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter",
            "select_cursor",
            "Open",
            id="table.open",
            tooltip="Open the row under the cursor",
            group=MOVE,
        ),
        Binding(
            "j", "cursor_down", "Down", show=False, id="table.down", tooltip="Next row", group=MOVE
        ),
        Binding(
            "k", "cursor_up", "Up", show=False, id="table.up", tooltip="Row before", group=MOVE
        ),
        Binding(
            "g",
            "scroll_top",
            "First",
            show=False,
            id="table.first",
            tooltip="First row",
            group=MOVE,
        ),
        Binding(
            "G",
            "scroll_bottom",
            "Last",
            show=False,
            id="table.last",
            tooltip="Last row",
            group=MOVE,
        ),
    ]

    def __init__(self, name: str, *, opens: bool = True) -> None:
        """`opens` says that enter does something with the row."""
        super().__init__(id=name, cursor_type="row", cell_padding=1)
        self._opens = opens

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self.restyle())

    def restyle(self) -> None:
        """Colour all cells by the theme in use."""
        for row in self.rows:
            for column in self.columns:
                cell = self.get_cell(row, column)
                if isinstance(cell, Styled):
                    self.update_cell(row, column, styled(self.app, cell.plain, cell.role))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._opens or action != "select_cursor"

    @property
    def key(self) -> str | None:
        """The key of the row under the cursor."""
        try:
            return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value
        except CellDoesNotExist:
            return None

    def head(self, *columns: tuple[str, int | None]) -> None:
        """Name the columns; a width of None is as wide as the content."""
        self.clear(columns=True)
        for title, width in columns:
            self.add_column(title, width=width, key=title)

    def fill(self, rows: Iterable[tuple[str, Sequence[object]]]) -> None:
        """Replace all rows, keeping the cursor on the row of its key. Plain texts are shown as they
        are, without markup.
        """
        before = self.key
        with self.prevent(DataTable.RowHighlighted):
            self.clear()
            for key, cells in rows:
                self.add_row(*(_plain(cell) for cell in cells), key=key)
            self.go_to(before)
        # Once, for the row where the cursor came to rest; not for the first one in passing.
        if self.key is not None:
            self.post_message(self.RowHighlighted(self, self.cursor_row, RowKey(self.key)))

    def renew(self, key: str, cells: Sequence[object]) -> None:
        """Replace the cells of one row where they changed."""
        for column, cell in zip(self.ordered_columns, cells, strict=True):
            fresh = _plain(cell)
            if self.get_cell(key, column.key) != fresh:
                self.update_cell(key, column.key, fresh)

    def go_to(self, key: str | None) -> None:
        """Put the cursor on the row of that key, if there is one."""
        if key is None:
            return
        try:
            self.move_cursor(row=self.get_row_index(key))
        except RowDoesNotExist:
            return


def _plain(cell: object) -> Text:
    return (
        cell
        if isinstance(cell, Text)
        else Text(visible_line(str(cell)), no_wrap=True, overflow="ellipsis")
    )
