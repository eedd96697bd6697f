"""A kernel in the user's own editor."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from kmint_tui.app import KmintApp
from kmint_tui.errors import EnvironmentUnfit
from kmint_tui.screens import editor
from kmint_tui.screens.mint import MintScreen
from tests.tui.conftest import Open, toasts, until
from tests.tui.scenes import minting


def script(folder: Path, body: str) -> Path:
    """An editor that does `body` to the file that it is given."""
    path = folder / "edit.sh"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return path


def test_visual_goes_before_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = script(tmp_path, "true")
    monkeypatch.setenv("EDITOR", "false")
    monkeypatch.setenv("VISUAL", f"{program} --wait")
    assert editor.editor() == [str(program), "--wait"]


def test_without_an_editor_the_error_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "nowhere-to-be-found")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentUnfit, match="no editor is here"):
        editor.editor()


def test_an_edited_copy_is_never_overwritten() -> None:
    first = editor.copy_to_edit("a = 1\n", "draft-1.0")
    first.write_text("a = 2\n")
    second = editor.copy_to_edit("a = 1\n", "draft-1.0")
    assert (first.read_text(), second.read_text()) == ("a = 2\n", "a = 1\n")
    assert first.stat().st_mode & 0o077 == 0 or first.parent.stat().st_mode & 0o077 == 0


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("body", "said"), [('echo "# mine" >> "$1"', "kmint judge"), ("true", "unchanged")]
)
async def test_an_edited_kernel_gets_the_command_that_judges_it(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, said: str
) -> None:
    monkeypatch.setenv("VISUAL", str(script(tmp_path, body)))
    monkeypatch.setattr(KmintApp, "suspend", lambda app: nullcontext())
    async with open_app((120, 36)) as (app, pilot):
        await minting(pilot)
        assert isinstance(app.screen, MintScreen)
        await pilot.press("v")
        await until(pilot, lambda: said in toasts(app))
        if said != "unchanged":
            assert app.clipboard.startswith("kmint judge ")
            assert app.clipboard.endswith(" --op softmax")
