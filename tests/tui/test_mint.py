"""The Mint screen with the real smith and the real referee."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input, Select, Static

from kmint_tui import paths
from kmint_tui.app import KmintApp
from kmint_tui.history.store import History
from kmint_tui.screens.draft import DraftScreen
from kmint_tui.screens.leave import Leave
from kmint_tui.screens.mint import MintScreen
from kmint_tui.widgets.composer import Composer
from kmint_tui.widgets.draft_table import DraftTable
from tests.tui.conftest import Open, screen_text, settle, toasts, until

pytestmark = pytest.mark.asyncio


def mint_screen(app: KmintApp) -> MintScreen:
    screen = app.screen
    assert isinstance(screen, MintScreen)
    return screen


def ask_for_softmax(app: KmintApp, model: Path, drafts: int = 2) -> None:
    """Fill in the form as a person would."""
    screen = app.screen
    screen.query_one("#way", Select).value = "list"
    screen.query_one("#op", Input).value = "softmax"
    screen.query_one("#drafts", Input).value = str(drafts)
    screen.query_one("#seed", Input).value = "1"
    screen.query_one(Composer).offer_models([("told", str(model))], str(model))
    screen.query_one("#model", Select).value = str(model)


async def test_the_composer_names_the_operation(open_app: Open) -> None:
    async with open_app() as (app, pilot):
        composer = app.screen.query_one(Composer)
        assert composer.op is not None
        assert composer.op.name == "rmsnorm"
        app.screen.query_one("#residual", Select).value = "yes"
        app.screen.query_one("#norm", Select).value = "layernorm"
        app.screen.query_one("#first", Select).value = "silu"
        app.screen.query_one("#second", Select).value = "tanh"
        await pilot.pause()
        assert composer.op is not None
        assert composer.op.name == "add_layernorm_silu_tanh"
        assert "add_layernorm_silu_tanh" in screen_text(app)
        assert mint_screen(app).cli_command() == "kmint mint add_layernorm_silu_tanh --drafts 8"


async def test_the_list_of_operations_narrows_and_is_chosen_from(open_app: Open) -> None:
    async with open_app() as (app, pilot):
        app.screen.query_one("#way", Select).value = "list"
        app.screen.query_one("#op", Input).focus()
        await pilot.press(*"softcap")
        await until(pilot, lambda: "softcap_softmax" in screen_text(app))
        await pilot.press("enter")
        await pilot.pause()
        assert app.screen.query_one("#op", Input).value == "softcap_softmax"


async def test_what_cannot_be_minted_is_refused_with_a_reason(open_app: Open) -> None:
    async with open_app() as (app, pilot):
        app.screen.query_one("#drafts", Input).value = "900"
        await pilot.press("f5")
        await pilot.pause()
        assert "drafts must be a whole number" in toasts(app)
        app.screen.query_one("#drafts", Input).value = "2"
        app.screen.query_one("#way", Select).value = "file"
        app.screen.query_one("#reference", Input).value = "nowhere.py:f"
        await pilot.press("f5")
        await until(pilot, lambda: app.run_now is None)
        assert "nowhere.py" in str(app.screen.query_one("#trouble", Static).content)
        assert mint_screen(app).cli_command() == "kmint mint --reference nowhere.py:f --drafts 2"


async def test_from_the_form_to_a_saved_kernel(
    open_app: Open, smiths: Path, tmp_path: Path
) -> None:
    async with open_app() as (app, pilot):
        ask_for_softmax(app, smiths / "good.gguf")
        await pilot.press("f5")
        await until(pilot, lambda: app.run_now is None)
        screen = mint_screen(app)
        assert screen.session.result is not None
        assert str(screen.query_one("#trouble", Static).content) == ""
        assert (screen.session.result.state, screen.session.best) == ("done", 0)
        shown = screen_text(app)
        assert "✓" in shown
        assert "the same kernel as draft 0" in " ".join(
            row.why for row in screen.session.drafts.values()
        )
        assert screen.query_one(DraftTable).key == "0"
        await pilot.press("y")
        assert "tl.exp" in app.clipboard
        await pilot.press("enter")
        await settle(pilot)
        draft = app.screen
        assert isinstance(draft, DraftScreen)
        assert draft.draft is not None
        assert (draft.draft.id, draft.draft.outcome) == ("1.0", "correct")
        await pilot.press("s")
        await pilot.pause()
        await pilot.press(*str(tmp_path / "kernels"), "enter")
        await until(pilot, lambda: (tmp_path / "kernels" / "softmax.py").exists())
        await settle(pilot)
        assert "saved draft 1.0" in toasts(app)
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(app.screen, MintScreen)


@pytest.mark.parametrize(("name", "stage"), [("wrong", "correct"), ("cheat", "screen")])
async def test_a_failed_mint_says_why_and_at_which_stage(
    open_app: Open, smiths: Path, name: str, stage: str
) -> None:
    async with open_app((120, 36)) as (app, pilot):
        ask_for_softmax(app, smiths / f"{name}.gguf", drafts=1)
        await pilot.press("f5")
        await until(pilot, lambda: app.run_now is None)
        screen = mint_screen(app)
        # The only kernel that passed is the one that kmint's template wrote.
        assert screen.session.best == 1
        assert screen.session.drafts[0].why.startswith(f"{stage}: ")
        assert f"{stage}: " in screen_text(app)
        assert "✗" in screen_text(app)


async def test_cancelling_keeps_what_is_done(open_app: Open, smiths: Path) -> None:
    async with open_app() as (app, pilot):
        ask_for_softmax(app, smiths / "endless.gguf", drafts=32)
        await pilot.press("f5")
        screen = mint_screen(app)
        await until(pilot, lambda: any(row.tokens for row in screen.session.drafts.values()))
        await pilot.press("x")
        await until(pilot, lambda: app.run_now is None)
        assert screen.session.result is not None
        assert screen.session.result.state == "stopped"
        with History(paths.history_file()) as history:
            assert [summary.state for summary in history.summaries()] == ["stopped"]


async def test_cancelling_before_the_session_began(open_app: Open, smiths: Path) -> None:
    async with open_app() as (app, pilot):
        ask_for_softmax(app, smiths / "endless.gguf")
        await pilot.press("f5", "x", "x")
        await until(pilot, lambda: app.run_now is None)
        session = mint_screen(app).session
        assert session.best is None
        # On a busy machine the session may begin before the key arrives. Its table then stays.
        assert app.screen.query_one(Composer).has_class("-folded") == bool(session.drafts)


async def test_a_smith_that_is_killed_becomes_a_message_with_a_way_on(
    open_app: Open, smiths: Path
) -> None:
    import os
    import signal

    async with open_app() as (app, pilot):
        ask_for_softmax(app, smiths / "endless.gguf", drafts=32)
        await pilot.press("f5")
        screen = mint_screen(app)
        await until(pilot, lambda: any(row.tokens for row in screen.session.drafts.values()))
        smith = app.engine.smith_ready
        assert smith is not None
        assert smith.pid is not None
        os.kill(smith.pid, signal.SIGKILL)
        await until(pilot, lambda: app.run_now is None)
        assert "the smith failed" in str(screen.query_one("#trouble", Static).content)
        ask_for_softmax(app, smiths / "good.gguf", drafts=1)
        await pilot.press("f5")
        await until(pilot, lambda: app.run_now is None)
        assert screen.session.best == 0


async def test_a_model_that_is_not_there_is_refused(open_app: Open, tmp_path: Path) -> None:
    async with open_app() as (app, pilot):
        ask_for_softmax(app, tmp_path / "none.gguf")
        await pilot.press("f5")
        await until(pilot, lambda: app.run_now is None)
        assert "none.gguf" in str(app.screen.query_one("#trouble", Static).content)


async def test_quitting_asks_and_leaves_no_process(open_app: Open, smiths: Path) -> None:
    async with open_app() as (app, pilot):
        ask_for_softmax(app, smiths / "endless.gguf", drafts=32)
        await pilot.press("f5")
        screen = mint_screen(app)
        await until(pilot, lambda: any(row.tokens for row in screen.session.drafts.values()))
        await pilot.press("q")
        await pilot.pause()
        assert isinstance(app.screen, Leave)
        await pilot.press("n")
        await pilot.pause()
        assert isinstance(app.screen, MintScreen)
        smith = app.engine.smith_ready
        assert smith is not None
        pid = smith.pid
        await pilot.press("ctrl+q")
        await pilot.pause()
        await pilot.press("y")
        await until(pilot, lambda: not app.is_running or app._exit)
        assert not Path(f"/proc/{pid}").exists()
    with History(paths.history_file()) as history:
        assert [summary.state for summary in history.summaries()] == ["stopped"]
