"""History and Draft, over a filled history."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from textual.message import Message
from textual.message_pump import MessagePump
from textual.widgets import Input, Static, TabbedContent

from kmint_tui import paths
from kmint_tui.history.records import Draft
from kmint_tui.history.store import History
from kmint_tui.screens.draft import DraftScreen
from kmint_tui.screens.history import HistoryScreen
from kmint_tui.screens.messages import answer
from kmint_tui.widgets.bars import TimeBars
from kmint_tui.widgets.table import Table
from tests.processes import processes_below
from tests.tui.conftest import Open, screen_text, settle, toasts, until
from tests.tui.filled import change, fill

pytestmark = pytest.mark.asyncio


async def test_an_empty_history_says_where_to_start(open_app: Open) -> None:
    async with open_app() as (app, pilot):
        app.action_show_mode("history")
        await settle(pilot)
        assert "Nothing was minted yet" in screen_text(app)
        await pilot.press("D", "o", "slash", "s", "r", "enter")
        assert app.is_running


async def test_filter_sort_open(open_app: Open) -> None:
    fill()
    async with open_app((120, 36)) as (app, pilot):
        app.action_show_mode("history")
        await settle(pilot)
        sessions = app.screen.query_one("#sessions", Table)
        assert [key.value for key in sessions.rows] == ["3", "2", "1"]
        await pilot.press("o")
        assert [key.value for key in sessions.rows] == ["2", "3", "1"]
        await pilot.press("slash", *"softmax")
        await pilot.pause()
        assert [key.value for key in sessions.rows] == ["1"]
        await pilot.press("enter")
        await settle(pilot)
        await pilot.press("enter")
        await pilot.press("down")
        assert app.screen.query_one("#drafts", Table).key == "1.1"
        await pilot.press("enter")
        await settle(pilot)
        assert isinstance(app.screen, DraftScreen)
        assert app.screen.draft is not None
        assert app.screen.draft.id == "1.1"
        assert "1.216x" in screen_text(app)
        await pilot.press("escape")
        await settle(pilot)
        assert app.current_mode == HistoryScreen.mode


async def test_an_answer_that_comes_late_does_not_replace_a_newer_one(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill()
    read, asked, go_on, told = (
        History.drafts,
        threading.Event(),
        threading.Event(),
        threading.Event(),
    )

    def slow(self: History, session: int) -> tuple[Draft, ...]:
        if session == 2:
            asked.set()
            go_on.wait()
        return read(self, session)

    def telling(to: MessagePump, message: Message) -> None:
        answer(to, message)
        if isinstance(message, HistoryScreen.DraftsFound) and message.session == 2:
            told.set()

    async with open_app() as (app, pilot):
        app.action_show_mode("history")
        await settle(pilot)
        monkeypatch.setattr(History, "drafts", slow)
        monkeypatch.setattr("kmint_tui.screens.history.answer", telling)
        try:
            await pilot.press("j")
            await until(pilot, asked.is_set)
            await pilot.press("j")
            await settle(pilot)
            drafts = app.screen.query_one("#drafts", Table)
            shown = ["1.0", "1.1", "1.2", "1.3"]
            assert [key.value for key in drafts.rows] == shown
        finally:
            go_on.set()
        await until(pilot, told.is_set)
        await settle(pilot)
        assert [key.value for key in drafts.rows] == shown


async def test_words_that_nothing_holds(open_app: Open) -> None:
    fill()
    async with open_app() as (app, pilot):
        app.action_show_mode("history")
        await settle(pilot)
        await pilot.press("slash", *"zzz")
        await until(pilot, lambda: "No session holds these words" in screen_text(app))
        await pilot.press("escape")
        await pilot.pause()
        assert app.screen.query_one("#filter", Input).value == ""
        assert len(app.screen.query_one("#sessions", Table).rows) == 3


async def test_deleting_asks_and_deletes(open_app: Open) -> None:
    fill()
    async with open_app() as (app, pilot):
        app.action_show_mode("history")
        await settle(pilot)
        await pilot.press("D", "n")
        await settle(pilot)
        with History(paths.history_file()) as history:
            assert len(history.summaries()) == 3
        await pilot.press("j", "j", "D")
        await until(pilot, lambda: "Delete session 1?" in screen_text(app))
        await pilot.press("y")
        await settle(pilot)
        with History(paths.history_file()) as history:
            assert [summary.id for summary in history.summaries()] == [3, 2]
            assert history.drafts(1) == ()
        assert [key.value for key in app.screen.query_one("#sessions", Table).rows] == ["3", "2"]


async def test_deleting_one_draft(open_app: Open) -> None:
    fill()
    async with open_app() as (app, pilot):
        app.action_show_mode("history")
        await settle(pilot)
        await pilot.press("G", "enter")
        await settle(pilot)
        await pilot.press("D", "y")
        await settle(pilot)
        assert "draft 1.0 is also the kernel of 1.3\ndelete 1.3 too" in toasts(app)
        await pilot.press("j", "D")
        await until(pilot, lambda: "Delete draft 1.1?" in screen_text(app))
        await pilot.press("y")
        await settle(pilot)
        assert [key.value for key in app.screen.query_one("#drafts", Table).rows] == [
            "1.0",
            "1.2",
            "1.3",
        ]


async def test_the_draft_screen_shows_everything(open_app: Open) -> None:
    fill()
    async with open_app((120, 36)) as (app, pilot):
        app.open_draft("1.1")
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, DraftScreen)
        assert [key.value for key in screen.query_one("#checks", Table).rows] == [
            "parse",
            "wrong_answer",
            "timing",
        ]
        assert len(screen.query_one("#cells", Table).rows) == 1
        bars = str(screen.query_one(TimeBars).content)
        assert "this kernel" in bars
        assert "floor (copy)" in bars
        assert "missing (it did not build" in bars
        assert "tl.exp" in screen_text(app)
        await pilot.press("right_square_bracket")
        await settle(pilot)
        assert screen.draft is not None
        assert screen.draft.id == "1.2"
        await pilot.press("d")
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert screen.query_one(TabbedContent).active == "tab-diff"
        assert "+# 2" in screen_text(app)
        await pilot.press("i")
        assert app.clipboard == "1.2"
        for downs, command in enumerate(
            ("history show 1.2", "history diff 1.1 1.2", "history rejudge 1.2", "history rm 1.2")
        ):
            await pilot.press("C")
            await pilot.pause()
            await pilot.press(*["j"] * downs, "enter")
            await pilot.pause()
            assert app.clipboard == f"kmint {command}"


async def test_a_draft_that_is_gone_is_a_message(open_app: Open) -> None:
    fill()
    async with open_app() as (app, pilot):
        app.open_draft("1.9")
        await settle(pilot)
        assert "the history holds no draft 1.9" in toasts(app)
        assert "No draft is open" in screen_text(app)


async def test_re_judging_stores_the_verdict_and_survives_a_kill(open_app: Open) -> None:
    fill()
    others = processes_below(os.getpid())
    async with open_app() as (app, pilot):
        app.open_draft("1.2")
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, DraftScreen)
        await pilot.press("r")
        await until(pilot, lambda: screen.draft is not None and screen.draft.outcome != "rejected")
        assert "correct, was rejected" in toasts(app)
        with History(paths.history_file()) as history:
            assert history.draft(1, 2).outcome == "correct"
        workers = processes_below(os.getpid()) - others
        assert workers
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        app.clear_notifications()
        await pilot.press("r")
        await until(pilot, lambda: not app.jobs.titles)
        await settle(pilot)
        assert toasts(app)
        app.clear_notifications()
        await pilot.press("r")
        await until(pilot, lambda: not app.jobs.titles)
        await settle(pilot)
        assert "correct, was correct" in toasts(app)


async def test_re_judging_without_an_operation_needs_the_reference(
    open_app: Open, tmp_path: Path
) -> None:
    fill()
    change("UPDATE sessions SET op = 'my_own' WHERE id = 1")
    async with open_app() as (app, pilot):
        app.open_draft("1.0")
        await settle(pilot)
        await pilot.press("r")
        await until(pilot, lambda: "my_own is no operation of the catalogue" in screen_text(app))
        await pilot.press(*str(tmp_path / "nowhere.py"), "f2")
        assert app.clipboard == f"kmint history rejudge 1.0 --reference {tmp_path / 'nowhere.py'}"
        await pilot.press("enter")
        await settle(pilot)
        assert "nowhere.py" in toasts(app)
        assert "judged again" not in str(app.screen.query_one("#head", Static).content)


async def test_re_judging_a_duplicate_names_the_original(open_app: Open) -> None:
    fill()
    async with open_app() as (app, pilot):
        app.open_draft("1.3")
        await settle(pilot)
        await pilot.press("r")
        await settle(pilot)
        assert "judge 1.0 again" in toasts(app)


async def test_cancelled_re_judging_keeps_the_verdict(open_app: Open) -> None:
    fill()
    async with open_app() as (app, pilot):
        app.action_show_mode("history")
        await settle(pilot)
        await pilot.press("G", "enter", "down", "down", "r", "x")
        await settle(pilot)
        assert not app.jobs.titles
        with History(paths.history_file()) as history:
            assert history.draft(1, 2).outcome == "rejected"


async def test_markup_and_control_characters_in_a_source_are_only_text(open_app: Open) -> None:
    from kmint_tui.widgets.code import CodeView

    async with open_app() as (app, pilot):
        fill()
        app.open_draft("1.0")
        await settle(pilot)
        app.screen.query_one("#code", CodeView).show("[b]x[/b] \x1b]52;c;aGk=\x07 [link=x]")
        await pilot.pause()
        shown = screen_text(app)
        assert "[b]x[/b]" in shown
        assert "\x1b" not in shown
