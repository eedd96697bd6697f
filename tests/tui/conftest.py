"""What the tests of the interface share: the application at a size, models that say what they are told, a filled history."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import pytest
from textual.pilot import Pilot

from kmint_tui.app import KmintApp
from tests import tiny_models
from tests.save.test_host_code import GOOD

Open: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[KmintApp, Pilot[int]]]]

SOURCES = {
    "good": GOOD,
    "wrong": GOOD.replace("x / tl.sum(x, axis=0)", "x"),
    "cheat": "def run(x):\n    return torch.softmax(x, dim=-1)\n",
}


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
    async def opened(size: tuple[int, int] = (80, 24)) -> AsyncIterator[tuple[KmintApp, Pilot[int]]]:
        app = KmintApp()
        try:
            async with app.run_test(size=size, notifications=True) as pilot:
                await settle(pilot)
                yield app, pilot
                if app.run_now is not None:
                    app.run_now.abandon()
                    await settle(pilot)
        finally:
            app.engine.close()

    return opened


async def settle(pilot: Pilot[int]) -> None:
    """Wait until all workers are through and what they posted is handled."""
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()


async def until(pilot: Pilot[int], true: Callable[[], object]) -> None:
    """Let the application work until something is true; the test's own limit is pytest's."""
    while not true():
        await pilot.pause(0.02)


def toasts(app: KmintApp) -> str:
    """The text of all messages shown."""
    return "\n".join(f"{note.title}: {note.message}" for note in app._notifications)


def screen_text(app: KmintApp) -> str:
    """What is on the screen, as text."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)
