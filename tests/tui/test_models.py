"""Models and Doctor, with real files and a hub on this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.widgets import Static

from kmint_tui import paths
from kmint_tui.doctor import Finding
from kmint_tui.screens.models import ModelsScreen
from kmint_tui.widgets.table import Table
from tests import tiny_models
from tests.tui.conftest import HANGS, Open, screen_text, settle, toasts, until

pytestmark = pytest.mark.asyncio

REGISTRY = """
[[model]]
id = "tiny"
title = "A tiny model with a title that is rather long for a table"
kind = "hub"
rank = 1
repo = "someone/tiny-GGUF"
quants = ["F16"]
licence = "MIT"
context = 2048
dialect = "card"
temperature = 0.7
top_p = 0.97
max_tokens = 64
layers = 2
kv_heads = 2
head_dim = 32
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A registry with one model more, and a file of it."""
    paths.user_models_file().parent.mkdir(parents=True)
    paths.user_models_file().write_text(REGISTRY)
    return tiny_models.llama(tmp_path / "tiny-F16.gguf")


async def test_import_verify_remove(open_app: Open, tiny: Path) -> None:
    async with open_app() as (app, pilot):
        app.action_show_mode("models")
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, ModelsScreen)
        await pilot.press("i")
        await pilot.pause()
        await pilot.press(*str(tiny), "enter")
        await settle(pilot)
        assert (paths.models_dir() / "tiny" / "tiny-F16.gguf").is_symlink()
        screen.query_one(Table).go_to("tiny")
        await pilot.pause()
        assert screen.smith is not None
        assert screen.smith.state == "here"
        assert screen.smith.fit.startswith("fits: ")
        await pilot.press("v")
        await settle(pilot)
        assert "models.toml names no sha256 for it" in toasts(app)
        await pilot.press("D", "y")
        await settle(pilot)
        assert "removed 1 files" in toasts(app)
        assert tiny.exists()


async def test_importing_what_is_no_model_says_so(open_app: Open, tmp_path: Path) -> None:
    path = tmp_path / "no.gguf"
    path.write_bytes(b"nothing")
    async with open_app() as (app, pilot):
        app.action_show_mode("models")
        await settle(pilot)
        await pilot.press("i")
        await pilot.pause()
        await pilot.press(*str(path), "enter")
        await settle(pilot)
        assert "no.gguf" in toasts(app)


async def test_pulling_offline_is_refused_with_the_reason(
    open_app: Open, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KMINT_OFFLINE", "1")
    async with open_app() as (app, pilot):
        app.action_show_mode("models")
        await settle(pilot)
        app.screen.query_one(Table).go_to("tiny")
        await pilot.pause()
        await pilot.press("p")
        await settle(pilot)
        assert "KMINT_OFFLINE keeps kmint offline" in toasts(app)
        assert (app.screen.query_one("#pulling", Static).content) == ""


async def test_the_embedded_smith_cannot_be_pulled_or_removed(open_app: Open) -> None:
    async with open_app() as (app, pilot):
        app.action_show_mode("models")
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, ModelsScreen)
        screen.query_one(Table).go_to("embedded")
        await pilot.pause()
        assert not screen.check_action("pull", ())
        assert not screen.check_action("remove", ())
        await pilot.press("p", "D", "x")
        assert app.screen is screen


async def test_the_doctor_looks_at_everything(open_app: Open) -> None:
    async with open_app((120, 36)) as (app, pilot):
        app.action_show_mode("doctor")
        await settle(pilot)
        rows = [key.value for key in app.screen.query_one(Table).rows]
        assert {
            "python",
            "gpu",
            "compiler",
            "memory",
            "disk",
            "settings",
            "terminal",
            "offline",
        } <= set(rows)
        await pilot.press("y")
        assert "python: ok" in app.clipboard


async def test_the_doctor_names_wrong_settings(open_app: Open) -> None:
    paths.config_file().parent.mkdir(parents=True)
    paths.config_file().write_text("[mint]\ndraft = 3\n")
    async with open_app((120, 36)) as (app, pilot):
        app.action_show_mode("doctor")
        await until(pilot, lambda: "unknown setting" in screen_text(app))


@pytest.mark.parametrize(("moves", "row"), [(0, "settings"), (3, "part 03")])
async def test_the_doctor_shows_failures_first(
    open_app: Open, monkeypatch: pytest.MonkeyPatch, moves: int, row: str
) -> None:
    """The cursor is on it, unless it was moved; then it stays on its row."""
    more = threading.Event()

    def findings(offline: bool, started: list[object]) -> Iterator[Finding]:
        yield from (Finding(f"part {number:02}", "ok", "works") for number in range(50))
        more.wait(HANGS)
        yield Finding("settings", "fail", "unknown setting", "correct it")

    monkeypatch.setattr("kmint_tui.screens.doctor.examine", findings)
    async with open_app((120, 36)) as (app, pilot):
        app.action_show_mode("doctor")
        await pilot.pause()
        table = app.screen.query_one(Table)
        await until(pilot, lambda: table.row_count == 50)
        await pilot.press(*"j" * moves)
        more.set()
        await settle(pilot)
        assert table.key == row
        await pilot.press("g")
        assert table.key == "settings"
        assert "settings: unknown setting" in screen_text(app)


@pytest.mark.parametrize("mode", ["crowns", "grid"])
async def test_what_is_not_there_is_explained(open_app: Open, mode: str) -> None:
    async with open_app() as (app, pilot):
        app.action_show_mode(mode)
        await settle(pilot)
        assert "No crowns." in screen_text(app) or "No grid was measured." in screen_text(app)
