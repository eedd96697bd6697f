"""Book: its kernels by operation, saved after a judgement here, and the way to a first book."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from kmint_tui import paths
from kmint_tui.app import KmintApp
from kmint_tui.book import store
from kmint_tui.book.document import text_of
from kmint_tui.history.store import PASSED, History
from kmint_tui.screens.book import BookScreen
from kmint_tui.widgets.table import Table
from tests.book.examples import RIGHT, WRONG, book, entry
from tests.tui.conftest import Open, screen_text, settle, toasts, until
from tests.tui.filled import fill_book

pytestmark = pytest.mark.asyncio


async def book_screen(app: KmintApp, pilot: Pilot[int]) -> BookScreen:
    app.action_show_mode("book")
    await settle(pilot)
    screen = app.screen
    assert isinstance(screen, BookScreen)
    return screen


def rows(screen: BookScreen, table: str) -> list[list[str]]:
    """The texts of a table."""
    found = screen.query_one(f"#{table}", Table)
    return [[str(cell) for cell in found.get_row(row)] for row in found.rows]


async def test_kernels_are_shown_by_operation(open_app: Open) -> None:
    fill_book()
    async with open_app((120, 36)) as (app, pilot):
        screen = await book_screen(app, pilot)
        assert [row[:2] for row in rows(screen, "operations")] == [
            ["relu2", "1"],
            ["silu", "3"],
            ["softmax", "1"],
        ]
        assert "NVIDIA H200: 5 kernels of 3 operations, 5 imported" in screen_text(app)
        await pilot.press("j")
        await settle(pilot)
        assert rows(screen, "operations")[1][2:] == ["1.094x", "1"]
        assert [row[:5] for row in rows(screen, "entries")] == [
            ["32768x1024", "bf16", "loss", "0.871x", "71 %"],
            ["64x4096", "bf16", "tie", "1.003x", ""],
            ["8192x4096", "bf16", "win", "1.500x", "90 %"],
        ]
        assert "tl.sigmoid" in screen_text(app)
        await pilot.press("j")
        await settle(pilot)
        assert rows(screen, "entries")[0][5].startswith("the tuner (BLOCK 256 -> 1024")
        detail = str(screen.query_one("#detail", Static).content)
        assert "ratio: 2.119x compile (2.100 to 2.131), win" in detail and "sha256: " in detail
        await pilot.press("y")
        assert app.clipboard == RIGHT


async def test_commands_are_of_the_kernel_or_of_the_operation(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kmint_tui.screens.book.no_gpu_reason", lambda: "no CUDA device")
    fill_book()
    async with open_app() as (app, pilot):
        screen = await book_screen(app, pilot)
        await pilot.press("j")
        await settle(pilot)
        assert screen.cli_command() == "kmint book save silu --to DIR"
        await pilot.press("enter", "j")
        await settle(pilot)
        assert screen.cli_command() == "kmint book save silu --shape 64x4096:bfloat16 --to DIR"
        names = [name for name, _ in screen.commands()]
        assert "build" not in names and "judge again" not in names
        monkeypatch.setattr("kmint_tui.screens.book.no_gpu_reason", lambda: None)
        assert {"build", "judge again"} <= {name for name, _ in screen.commands()}
        await pilot.press("escape")
        assert app.focused is screen.query_one("#operations")


async def test_a_kernel_is_judged_and_saved(open_app: Open, tmp_path: Path) -> None:
    store.take(book(entry()))
    async with open_app() as (app, pilot):
        await book_screen(app, pilot)
        await pilot.press("enter", "s")
        await settle(pilot)
        assert "Save silu 8192x4096 bfloat16 from the book" in screen_text(app)
        folder = tmp_path / "kernels"
        await pilot.press(*str(folder))
        await pilot.press("f2")
        shape = "8192x4096:bfloat16"
        assert app.clipboard == f"kmint book save silu --shape {shape} --to {folder}"
        await pilot.press("enter")
        await until(pilot, lambda: "saved silu 8192x4096 bfloat16 from the book" in toasts(app))
        assert (folder / "silu.py").exists() and str(folder / "silu.py") in toasts(app)
    with History(paths.history_file()) as history:
        (draft,) = history.drafts(1)
        assert draft.source == RIGHT and draft.outcome in PASSED


async def test_a_wrong_kernel_is_not_saved(open_app: Open, tmp_path: Path) -> None:
    store.take(book(entry(WRONG, ratio=9.0), sources=(WRONG,)))
    async with open_app() as (app, pilot):
        await book_screen(app, pilot)
        await pilot.press("s")
        await settle(pilot)
        await pilot.press(*str(tmp_path / "kernels"), "enter")
        await until(pilot, lambda: "none of its kernels can be saved here" in screen_text(app))
        assert not (tmp_path / "kernels").exists() and not app.jobs.titles


async def test_nothing_is_saved_while_times_are_measured(open_app: Open) -> None:
    store.take(book(entry()))
    async with open_app() as (app, pilot):
        screen = await book_screen(app, pilot)
        with app.jobs.begin("measuring the grid of 1.0", timing=True):
            await pilot.press("s")
            await pilot.pause()
            assert app.screen is screen
            assert "saving from a book would disturb its times" in toasts(app)


async def test_without_a_book_one_is_taken_from_a_file(open_app: Open, tmp_path: Path) -> None:
    file = tmp_path / "h200.json"
    file.write_text("{}")
    async with open_app((120, 36)) as (app, pilot):
        screen = await book_screen(app, pilot)
        assert "No book." in screen_text(app)
        assert "o takes the book of another machine from a file" in screen_text(app)
        assert [name for name, _ in screen.commands()][0] == "import"
        for action in ("save", "copy_code", "editor", "step"):
            assert screen.check_action(action, ()) is False
        for text, words in (
            ("{}", "no book"),
            (text_of(book(entry())), "1 kernel for NVIDIA H200"),
        ):
            file.write_text(text)
            await pilot.press("o")
            await settle(pilot)
            await pilot.press(*str(file), "enter")
            await until(pilot, partial(lambda wanted: wanted in toasts(app), words))
            await settle(pilot)
        assert rows(screen, "entries")[0][0] == "8192x4096"


async def test_a_damaged_book_is_told(open_app: Open) -> None:
    store.take(book(entry()))
    (file,) = store.folder("imported").glob("*.json")
    file.write_text("{")
    async with open_app((120, 36)) as (app, pilot):
        await book_screen(app, pilot)
        assert "damaged book: " in screen_text(app) and "move the file away" in screen_text(app)


async def test_books_of_several_devices_are_stepped_through(open_app: Open) -> None:
    store.take(book(entry()))
    store.take(book(entry(op="relu2"), device="NVIDIA A100"))
    async with open_app() as (app, pilot):
        screen = await book_screen(app, pilot)
        assert "NVIDIA A100: 1 kernel" in screen_text(app)
        assert "device 1 of 2 ([ ])" in screen_text(app)
        await pilot.press("right_square_bracket")
        await settle(pilot)
        assert "NVIDIA H200: 1 kernel" in screen_text(app)
        at = "--shape 8192x4096:bfloat16 --to DIR --device 'NVIDIA H200'"
        assert screen.cli_command() == f"kmint book save silu {at}"
