"""500 keys at random, twenty times: nothing breaks, and there is always a way back to a screen."""

from __future__ import annotations

import random

import pytest

from kmint_tui.screens.base import KmintScreen
from kmint_tui.screens.leave import Leave
from tests.tui.conftest import Open, settle
from tests.tui.filled import fill

KEYS = (
    *"1234567", *"mxesybogGjkrdDpivnC/?[]o", "enter", "escape", "tab", "shift+tab", "up", "down", "left", "right", "pageup", "pagedown",
    "home", "end", "space", "backspace", "delete", "f1", "f2", "f5", "ctrl+p", "ctrl+t", "ctrl+d", "ctrl+o", "ctrl+c", "ctrl+a",
)  # fmt: skip
SEQUENCES, LENGTH = 20, 25


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(SEQUENCES))
async def test_random_keys(open_app: Open, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fill()
    # Nothing may be fetched, and a session started by chance has no model to wait for.
    monkeypatch.setenv("KMINT_OFFLINE", "1")
    monkeypatch.setattr("kmint_tui.models.store.installed", lambda entry: None)
    draw = random.Random(seed)
    async with open_app(draw.choice([(80, 24), (120, 36), (60, 15)])) as (app, pilot):
        for _ in range(LENGTH):
            if isinstance(app.screen, Leave):
                await pilot.press("n")
            await pilot.press(draw.choice(KEYS))
        await settle(pilot)
        for _ in range(4):
            await pilot.press("escape")
        await settle(pilot)
        assert isinstance(app.screen, KmintScreen)
        app.screen.set_focus(None)
        await pilot.press("7")
        await settle(pilot)
        assert app.current_mode == "doctor"
