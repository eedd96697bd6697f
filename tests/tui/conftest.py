"""What the tests of the interface share: the application at a size, models that say what they are
told, a filled history.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
from textual._context import active_app
from textual.app import App
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.notifications import Notification
from textual.pilot import Pilot
from textual.worker import WorkerCancelled

from kmint_tui.app import KmintApp
from tests import tiny_models
from tests.save.test_host_code import GOOD

Open: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[KmintApp, Pilot[int]]]]

SOURCES = {
    "good": GOOD,
    "wrong": GOOD.replace("x / tl.sum(x, axis=0)", "x"),
    "cheat": "def run(x):\n    return torch.softmax(x, dim=-1)\n",
}


LONG = 3600.0
HANGS = 300.0
"""Seconds after which what a test waits for will not come; no machine is that slow."""
FRAME_SECONDS = 1 / 50
"""A little more than Textual waits before it lays out and paints what has changed."""
MOST_FRAMES = 50


async def idle(*_: float) -> None:
    """Wait until the application has done all that is to be done now.

    Textual's own way is to look how much processor time was used in the last 20 ms, which is little
    as well where other programs have the processor.
    """
    loop = cast("Any", asyncio.get_running_loop())
    for _frame in range(MOST_FRAMES):
        await asyncio.sleep(FRAME_SECONDS)
        while loop._ready:
            await asyncio.sleep(0)
        screen: Any = active_app.get().screen_stack and active_app.get().screen
        if not screen or not (
            screen._layout_required
            or screen._repaint_required
            or screen._dirty_widgets
            or screen._callbacks
        ):
            return


@pytest.fixture(scope="session", autouse=True)
def _parsed_once() -> Iterator[None]:
    """A style sheet that an earlier application of the process parsed is not parsed again."""
    parse = Stylesheet._parse_rules
    known: dict[object, list[RuleSet]] = {}

    def parsed(sheet: Stylesheet, *args: Any, **named: Any) -> list[RuleSet]:
        key = (args, *sorted(named.items()), *sorted(sheet._variables.items()))
        if key not in known:
            known[key] = parse(sheet, *args, **named)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parsed)
        yield


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a test looks at goes away, is not there yet, or is given up because the machine
    is slow.
    """
    monkeypatch.setattr("textual.app.wait_for_idle", idle)
    monkeypatch.setattr("textual.pilot.wait_for_idle", idle)
    monkeypatch.setattr(Pilot._wait_for_screen, "__defaults__", (LONG,))
    monkeypatch.setattr(Notification, "time_left", property(lambda note: LONG))
    monkeypatch.setattr("kmint_tui.doctor.examination.SECONDS", LONG)


@pytest.fixture(scope="session")
def smiths(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models: three that say one source, and one that never ends."""
    folder: Path = tmp_path_factory.mktemp("smiths")
    for name, source in SOURCES.items():
        tiny_models.scripted(folder / f"{name}.gguf", [f"```python\n{source}```".encode()])
    tiny_models.llama(folder / "endless.gguf", end=-9.0)
    return folder


@pytest.fixture
def open_app() -> Open:
    """Opens the application; everything it started is closed at the end."""

    @asynccontextmanager
    async def opened(
        size: tuple[int, int] = (80, 24),
    ) -> AsyncIterator[tuple[KmintApp, Pilot[int]]]:
        app = KmintApp()
        try:
            async with app.run_test(size=size, notifications=True) as pilot:
                await settle(pilot)
                yield app, pilot
                if app.run_now is not None:
                    app.run_now.abandon()
                app.jobs.cancel_all()
                await settle(pilot)
        finally:
            app.engine.close()

    return opened


async def settle(pilot: Pilot[int]) -> None:
    """Wait until all workers are through, those too that others begin, and what they posted is
    handled.
    """
    workers = pilot.app.workers
    await pilot.pause()
    while not all(worker.is_finished for worker in workers):
        for worker in tuple(workers):
            with suppress(WorkerCancelled):
                await worker.wait()
        await pilot.pause()


async def show_mode(app: KmintApp, pilot: Pilot[int], mode: str) -> None:
    """Go to a screen, and end what it begins by itself when it is shown."""
    app.action_show_mode(mode)
    await pilot.pause()
    app.jobs.cancel_all()
    await settle(pilot)


async def until(pilot: Pilot[int], true: Callable[[], object]) -> None:
    """Let the application work until something is true. Where that never comes, the test fails with
    what is on the screen.
    """
    deadline = time.monotonic() + HANGS
    while not true():
        assert time.monotonic() < deadline, (
            f"waited {HANGS:.0f} s for what never came; on the screen:\n{screen_text(pilot.app)}"
        )
        await pilot.pause(0.02)


def toasts(app: KmintApp) -> str:
    """The text of all messages shown."""
    return "\n".join(f"{note.title}: {note.message}" for note in app._notifications)


def screen_text(app: App[Any]) -> str:
    """What is on the screen, as text."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)
