"""The first page of the Mint screen, and the facts that are shown on every screen."""

from __future__ import annotations

import pytest
from textual.widgets import Input, Label, Select

from kmint_tui.core.facts import Facts
from kmint_tui.core.pulling import PULLING
from kmint_tui.screens.history import HistoryScreen
from kmint_tui.widgets.composer import Composer
from kmint_tui.widgets.screen_bars import FactsBar
from kmint_tui.widgets.start_list import OPERATION, OWN, SESSION, StartList
from kmint_tui.widgets.table import Table
from tests.tui.conftest import Open, until
from tests.tui.filled import fill

pytestmark = pytest.mark.asyncio


def choose(listed: StartList, identity: str) -> None:
    listed.focus()
    listed.highlighted = listed.get_option_index(identity)
    listed.action_select()


async def test_a_recent_session_opens_in_the_history(open_app: Open) -> None:
    fill()
    async with open_app() as (app, pilot):
        choose(app.screen.query_one(StartList), f"{SESSION}1")
        await until(pilot, lambda: isinstance(app.screen, HistoryScreen))
        await until(
            pilot,
            lambda: any(one.key == "1" for one in app.screen.query("#sessions").results(Table)),
        )


async def test_a_common_operation_fills_the_form(open_app: Open) -> None:
    async with open_app() as (app, pilot):
        choose(app.screen.query_one(StartList), f"{OPERATION}swiglu")
        composer = app.screen.query_one(Composer)
        await until(pilot, lambda: composer.op is not None and composer.op.name == "swiglu")


async def test_an_own_function_asks_for_its_file(open_app: Open) -> None:
    async with open_app() as (app, pilot):
        choose(app.screen.query_one(StartList), OWN)
        await until(pilot, lambda: app.focused is app.screen.query_one("#reference", Input))
        assert app.screen.query_one("#way", Select).value == "file"


async def test_online_is_said_only_while_something_may_connect(open_app: Open) -> None:
    async with open_app((120, 36)) as (app, pilot):
        app.facts = Facts("embedded", "not loaded", "no GPU", None)
        app.show_facts()
        bar = app.screen.query_one(FactsBar)
        assert "LINE" not in str(bar.content)
        with app.jobs.begin(f"{PULLING}minicpm5-1b"):
            await pilot.pause()
            assert "ONLINE: pulling minicpm5-1b" in str(bar.content)
        await pilot.pause()
        assert "LINE" not in str(bar.content)


@pytest.mark.parametrize(("gpu", "marked"), [("no GPU", True), ("H200 98.0 GiB free", False)])
async def test_screens_that_need_a_gpu_are_marked(open_app: Open, gpu: str, marked: bool) -> None:
    async with open_app() as (app, pilot):
        app.facts = Facts("embedded", "not loaded", gpu, None)
        app.show_facts()
        await pilot.pause()
        assert app.screen.query_one("#mode-grid", Label).has_class("-unusable") is marked
        assert not app.screen.query_one("#mode-mint", Label).has_class("-unusable")
