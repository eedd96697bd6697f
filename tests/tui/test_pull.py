"""Pulling a model in the interface: progress, cancelling, going on where it ended. The hub is a
server on this machine.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kmint_tui import paths
from kmint_tui.core.jobs import Cancelled, Jobs
from kmint_tui.core.pulling import Pull, Pulled
from kmint_tui.memory import AvailableMemory
from kmint_tui.models import part, registry
from kmint_tui.screens.models import ModelsScreen
from kmint_tui.widgets.table import Table
from tests import tiny_models
from tests.models.hub_server import Hub
from tests.tui.conftest import Open, screen_text, settle, toasts
from tests.tui.test_models import REGISTRY


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that holds the tiny model."""
    content = tiny_models.llama(tmp_path / "tiny-F16.gguf").read_bytes()
    paths.user_models_file().parent.mkdir(parents=True)
    paths.user_models_file().write_text(REGISTRY)
    with Hub("someone/tiny-GGUF", {"tiny-F16.gguf": content}) as server:
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            server.endpoint + "/{repo_id}/resolve/{revision}/{filename}",
        )
        yield server


def test_a_cancelled_pull_keeps_what_arrived_and_goes_on(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "CHUNK", 4096)
    entry = registry.load(paths.user_models_file()).get("tiny")
    seen: list[Pulled] = []
    begun = threading.Event()

    def report(progress: Pulled) -> None:
        seen.append(progress)
        if progress.total:
            begun.set()
            job.cancel()

    jobs = Jobs(lambda: None)
    job = jobs.begin("pulling tiny")
    pull = Pull(entry, report, job)
    remote, fit = pull.look(offline=None)
    assert fit.text
    with pytest.raises(Cancelled):
        pull.fetch(remote, offline=None)
    assert begun.is_set()
    arrived = paths.models_dir() / "tiny" / "tiny-F16.gguf.part"
    assert arrived.exists()
    path = Pull(entry, seen.append, jobs.begin("pulling tiny again")).fetch(remote, offline=None)
    assert path.name == "tiny-F16.gguf"
    assert not arrived.exists()
    assert seen[0] == Pulled("tiny", 0, 0, 0.0)


@pytest.mark.asyncio
async def test_pulling_in_the_interface(open_app: Open, hub: Hub) -> None:
    async with open_app((120, 36)) as (app, pilot):
        app.action_show_mode("models")
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, ModelsScreen)
        screen.query_one(Table).go_to("tiny")
        await pilot.pause()
        assert screen.cli_command() == "kmint models pull tiny"
        await pilot.press("p")
        await settle(pilot)
        assert "tiny is here" in toasts(app)
        assert screen.smith is not None
        assert screen.smith.state == "here"


@pytest.mark.asyncio
async def test_what_does_not_fit_is_pulled_only_after_a_yes(
    open_app: Open, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kmint_tui.models.fit.free_memory", lambda: AvailableMemory(main=1 << 20))
    async with open_app((120, 36)) as (app, pilot):
        app.action_show_mode("models")
        await settle(pilot)
        app.screen.query_one(Table).go_to("tiny")
        await pilot.pause()
        await pilot.press("p")
        await settle(pilot)
        assert "It does not fit here" in screen_text(app)
        await pilot.press("n")
        await settle(pilot)
        assert "pull cancelled" in toasts(app)
        assert not app.jobs.titles
        await pilot.press("p")
        await settle(pilot)
        await pilot.press("y")
        await settle(pilot)
        assert "tiny is here" in toasts(app)
