"""Crowns: holders, challengers, the history of reigns, and claiming. Duels are recorded ones, as
they need a GPU.
"""

from __future__ import annotations

import dataclasses

import pytest

from kmint_tui import paths
from kmint_tui.core import duel
from kmint_tui.crowns.records import Duel
from kmint_tui.crowns.store import Crowns
from kmint_tui.screens.crowns import CrownsScreen
from kmint_tui.screens.draft import DraftScreen
from kmint_tui.widgets.table import Table
from tests.tui.conftest import Open, screen_text, settle, toasts, until
from tests.tui.filled import fill, fill_crowns

pytestmark = pytest.mark.asyncio

WON = Duel(
    decision="win",
    reason="",
    ratio=1.03,
    low=1.02,
    high=1.04,
    challenger_us=39.9,
    champion_us=41.1,
    rounds=240,
    seed=7,
)


def holders() -> list[tuple[str, str]]:
    with Crowns(paths.history_file()) as store:
        return [(reign.crown.op, reign.draft) for reign in store.reigns()]


async def test_without_crowns_it_says_what_they_are(open_app: Open) -> None:
    async with open_app() as (app, pilot):
        app.action_show_mode("crowns")
        await settle(pilot)
        assert "No crowns." in screen_text(app)
        assert app.screen.check_action("claim", ()) is False


async def test_holders_challengers_and_past_reigns(open_app: Open) -> None:
    fill()
    fill_crowns()
    async with open_app((120, 36)) as (app, pilot):
        app.action_show_mode("crowns")
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, CrownsScreen)
        shown = screen_text(app)
        assert "vacant" in shown
        assert len(screen.query_one("#crown-list", Table).rows) == 2
        await pilot.press("j")
        await pilot.pause()
        assert [key.value for key in screen.query_one("#challengers", Table).rows] == ["4.1", "1.1"]
        assert len(screen.query_one("#reigns", Table).rows) == 2
        assert "1.021x (1.015 to 1.027) head to head" in screen_text(app)
        assert screen.cli_command() == "kmint crowns claim 4.1"
        await pilot.press("enter")
        await settle(pilot)
        assert isinstance(app.screen, DraftScreen)
        assert app.screen.draft is not None
        assert app.screen.draft.id == "4.0"


async def test_a_vacant_crown_is_claimed_after_a_yes(open_app: Open) -> None:
    fill()
    fill_crowns()
    async with open_app() as (app, pilot):
        app.action_show_mode("crowns")
        await settle(pilot)
        await pilot.press("c")
        await until(pilot, lambda: "Let 5.0 claim its crown?" in screen_text(app))
        await pilot.press("f2")
        assert app.clipboard == "kmint crowns claim 5.0"
        await pilot.press("n")
        await settle(pilot)
        assert holders() == [("softmax", "4.0")]
        await pilot.press("c", "y")
        await settle(pilot)
        assert "5.0 takes the vacant crown for layernorm" in toasts(app)
        assert holders() == [("layernorm", "5.0"), ("softmax", "4.0")]


@pytest.mark.parametrize(("outcome", "holder"), [("win", "4.1"), ("tie", "4.0")])
async def test_a_held_crown_is_fought_for(
    open_app: Open, monkeypatch: pytest.MonkeyPatch, outcome: str, holder: str
) -> None:
    fill()
    fill_crowns()
    fought = (
        WON
        if outcome == "win"
        else dataclasses.replace(WON, decision="tie", ratio=1.0, low=0.995, high=1.005)
    )
    monkeypatch.setattr(duel, "head_to_head", lambda *_, **__: fought)
    async with open_app((120, 36)) as (app, pilot):
        app.action_show_mode("crowns")
        await settle(pilot)
        await pilot.press("j", "c", "y")
        await settle(pilot)
        assert dict(holders())["softmax"] == holder
        assert f"{holder} {'takes' if outcome == 'win' else 'keeps'} the crown" in toasts(app)


async def test_a_cancelled_duel_does_not_count(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill()
    fill_crowns()
    async with open_app() as (app, pilot):

        def cancelled(*_: str, **__: object) -> Duel:
            app.jobs.cancel_all()
            return WON

        monkeypatch.setattr(duel, "head_to_head", cancelled)
        app.claim_crown("1.1")
        await settle(pilot)
        await pilot.press("y")
        await settle(pilot)
        assert dict(holders())["softmax"] == "4.0"
        assert not app.jobs.titles


async def test_without_a_gpu_a_held_crown_stays(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kmint_tui.core.referee.no_gpu_reason", lambda: "no CUDA device")
    fill()
    fill_crowns()
    async with open_app((120, 36)) as (app, pilot):
        app.open_draft("1.1")
        await settle(pilot)
        await pilot.press("c")
        await settle(pilot)
        await pilot.press("y")
        await settle(pilot)
        assert "a crown is decided on a GPU, and there is none" in toasts(app)
        assert dict(holders())["softmax"] == "4.0"
