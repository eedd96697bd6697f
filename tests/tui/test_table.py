"""The table: its cursor stays on its row when the rows are replaced, and only that row is
announced.
"""

from __future__ import annotations

import pytest
from textual import on
from textual.app import App, ComposeResult
from textual.widgets import DataTable

from kmint_tui.widgets.table import Table

pytestmark = pytest.mark.asyncio


class Shown(App[None]):
    """A table, and the rows that were announced."""

    def compose(self) -> ComposeResult:
        yield Table("rows")

    def on_mount(self) -> None:
        self.announced: list[str | None] = []
        self.query_one(Table).head(("name", 10))

    @on(DataTable.RowHighlighted)
    def _highlighted(self, event: DataTable.RowHighlighted) -> None:
        self.announced.append(event.row_key.value)


@pytest.mark.parametrize(
    ("kept", "announced"), [("abc", "c"), ("cab", "c"), ("ab", "a"), ("", None)]
)
async def test_replaced_rows_announce_the_row_under_the_cursor(
    kept: str, announced: str | None
) -> None:
    app = Shown()
    async with app.run_test() as pilot:
        table = app.query_one(Table)
        table.fill((key, [key]) for key in "abc")
        table.go_to("c")
        await pilot.pause()
        app.announced.clear()
        table.fill((key, [key]) for key in kept)
        await pilot.pause()
        assert table.key == announced
        assert app.announced == ([announced] if announced else [])
