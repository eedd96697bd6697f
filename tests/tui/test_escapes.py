"""No text of a stranger steers the terminal or the interface, whichever part of the application
shows it."""

from __future__ import annotations

import pytest
from textual.widgets import TabbedContent

from kmint_tui.widgets.code import CodeView
from tests.evil import EVIL, STEERS, fill_evil
from tests.tui.conftest import Open, screen_text, settle

pytestmark = pytest.mark.asyncio


async def test_no_screen_steers_the_terminal(open_app: Open) -> None:
    fill_evil()
    async with open_app((140, 50)) as (app, pilot):
        for screen in ("mint", "crowns", "grid", "models", "history"):
            app.action_show_mode(screen)
            await settle(pilot)
            assert not STEERS.search(screen_text(app)), screen
        assert "\\x1b]52" in screen_text(app), "a table writes escapes visibly"
        app.open_draft("1.0")
        await settle(pilot)
        for tab in ("tab-checks", "tab-cells", "tab-time", "tab-prompt"):
            app.screen.query_one(TabbedContent).active = tab
            await settle(pilot)
            text = screen_text(app)
            assert not STEERS.search(text), tab
            assert "[@click=app.q" in text, "text in brackets is no markup"


async def test_no_notice_or_title_steers_the_terminal(open_app: Open) -> None:
    """Whatever a widget makes its text of, the line filter has the last word."""
    async with open_app((140, 50)) as (app, pilot):
        app.notify(EVIL, title=EVIL, markup=False)
        app.screen.query(CodeView).first().border_title = EVIL
        await settle(pilot)
        text = screen_text(app)
        assert "52;c;ZXZpbA==" in text and not STEERS.search(text)
