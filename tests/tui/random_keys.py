"""One sequence of random keys through the application."""

from __future__ import annotations

import random

from kmint_tui.app import KmintApp
from kmint_tui.screens.base import KmintScreen
from kmint_tui.screens.leave import Leave
from kmint_tui.screens.preferences import THEMES
from kmint_tui.widgets.screen_bars import MODE_TITLES
from tests.tui.conftest import settle
from tests.tui.filled import fill, fill_crowns, fill_grid

KEYS = (
    *"12345678", *"mxesybogGjkrdDpivncthlCq/?[]", "enter", "escape", "tab", "shift+tab", "up", "down", "left", "right", "pageup",
    "pagedown", "home", "end", "space", "backspace", "delete", "f1", "f2", "f5", "ctrl+p", "ctrl+t", "ctrl+d", "ctrl+o", "ctrl+c",
    "ctrl+a", "ctrl+q",
)  # fmt: skip
VISITS = 2
SIZES = ((80, 24), (120, 36), (60, 15), (20, 6))


async def one_sequence(seed: int, length: int) -> None:
    """Press `length` keys drawn from `seed`, then go back to a screen and visit some others. Raises
    what breaks.
    """
    draw = random.Random(seed)
    fill()
    fill_crowns()
    fill_grid()
    app = KmintApp()
    app.theme = draw.choice(THEMES)
    pressed: list[str] = []
    try:
        async with app.run_test(size=draw.choice(SIZES), notifications=True) as pilot:
            await settle(pilot)
            for _ in range(length):
                # The answer to leaving is no; with nothing under way it leaves, which ends the
                # sequence.
                if isinstance(app.screen, Leave):
                    if not app.screen.asking:
                        return
                    await pilot.press("n")
                pressed.append(draw.choice(KEYS))
                await pilot.press(pressed[-1])
                if not app.is_running or app._exit:
                    return
            app.jobs.cancel_all()
            await settle(pilot)
            for _ in range(6):
                await pilot.press("escape")
            await settle(pilot)
            if not isinstance(app.screen, KmintScreen):
                raise AssertionError(f"no way back from {app.screen} after {pressed}")
            for number in draw.sample(range(1, len(MODE_TITLES) + 1), VISITS):
                mode, _ = MODE_TITLES[number - 1]
                app.screen.set_focus(None)
                await pilot.press(str(number))
                app.jobs.cancel_all()
                await settle(pilot)
                if app.current_mode != mode:
                    raise AssertionError(f"{number} does not go to {mode} after {pressed}")
    except Exception as error:
        error.add_note(f"keys: {pressed}")
        raise
    finally:
        app.engine.close()
