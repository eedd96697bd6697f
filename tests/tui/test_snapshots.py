"""Pictures of every screen at two sizes, some at three, compared with the ones in the repository.
One size is also in the other themes.

Regenerate with `pytest tests/tui/test_snapshots.py --snapshot-update` on the baseline Python, and
look at them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_textual_snapshot import SVGImageExtension  # type: ignore[import-untyped]
from syrupy.assertion import SnapshotAssertion
from textual.widgets import Input, TextArea

from kmint_tui.app import KmintApp
from kmint_tui.core import facts
from kmint_tui.core.facts import Facts
from kmint_tui.doctor import Finding
from tests.tui.scenes import MAIN, SCENES, WIDE, WITH_MESSAGES

BASELINE = (3, 11)
SIZES = ((80, 24), (120, 36))
LARGE = (200, 50)
FINDINGS = (
    Finding("python", "ok", "3.11.7 on Linux"),
    Finding(
        "gpu",
        "warn",
        "this build of torch has no CUDA support; kernels are checked by Triton's interpreter and never timed",
    ),
    Finding(
        "smith", "fail", "no model is here", "install kmint again, or pull one on the Models screen"
    ),
    Finding("memory", "unknown", "the system does not say"),
)


def themes(name: str, size: tuple[int, int]) -> tuple[str, ...]:
    """The themes of a picture: a change of theme moves nothing, so one size shows all of them."""
    if size != SIZES[1]:
        return ("kmint-dark",)
    return ("kmint-dark", "kmint-light", *(["kmint-contrast"] if name in MAIN else []))


def findings(offline: bool, started: list[object]) -> Iterator[Finding]:
    """What the doctor would find."""
    yield from FINDINGS


pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != BASELINE, reason="the pictures are of Python 3.11"
)


@pytest.fixture(autouse=True)
def same_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same facts, folders and findings on every machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KMINT_HOME", "home")
    no_gpu = "this build of torch has no CUDA support"
    monkeypatch.setattr(
        facts,
        "collect",
        lambda smith, offline=False: Facts("embedded", "not loaded", "no GPU", "KMINT_OFFLINE"),
    )
    monkeypatch.setattr("kmint_tui.screens.crowns.no_gpu_reason", lambda: no_gpu)
    monkeypatch.setattr("kmint_tui.screens.grid.no_gpu_reason", lambda: no_gpu)
    monkeypatch.setattr("kmint_tui.screens.book.no_gpu_reason", lambda: no_gpu)
    monkeypatch.setattr("kmint_tui.screens.doctor.examine", findings)
    monkeypatch.setattr("kmint_tui.models.store.installed", lambda entry: None)
    # A cursor that blinks is seen or not by the speed of the machine.
    monkeypatch.setattr(Input, "_toggle_cursor", lambda field: None)
    monkeypatch.setattr(TextArea, "_toggle_cursor_blink_visible", lambda area: None)


@pytest.mark.asyncio
@pytest.mark.parametrize("name", SCENES)
async def test_pictures(name: str, snapshot: SnapshotAssertion) -> None:
    prepared, scene = SCENES[name]
    prepared()
    app = KmintApp()
    app.animation_level = "none"
    pictures = snapshot.use_extension(SVGImageExtension)
    try:
        async with app.run_test(size=SIZES[0], notifications=True) as pilot:
            await scene(pilot)
            if name not in WITH_MESSAGES:
                app.clear_notifications()
            for size in (*SIZES, *([LARGE] if name in WIDE else [])):
                await pilot.resize_terminal(*size)
                for theme in themes(name, size):
                    app.theme = theme
                    await pilot.pause()
                    await pilot.pause()
                    picture = f"{size[0]}x{size[1]}-{theme}"
                    assert app.export_screenshot() == pictures(name=picture)
    finally:
        app.engine.close()
