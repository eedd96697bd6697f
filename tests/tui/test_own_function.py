"""The composer's "own function": chosen from a list, examined before minting, or pasted."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input, Select, Static, TextArea

from kmint_tui.core.own_function import functions_of
from kmint_tui.widgets.composer import Composer
from kmint_tui.widgets.task_lists import FunctionList
from tests.tui.conftest import Open, screen_text, until

MINE = """import torch


def scaled(x, weight, eps=1e-6):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def sorted_rows(x):
    return torch.sort(x, dim=-1)[0]


def get_init_inputs():
    return []
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "other.py").write_text("print('nothing to mint')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def graph(screen: object) -> str:
    return str(screen.query_one("#graph", Static).content)  # type: ignore[attr-defined]


@pytest.mark.asyncio
async def test_file_function_and_inputs_are_chosen(open_app: Open, folder: Path) -> None:
    """A file, then its function, with inputs to begin with; then its graph in words."""
    async with open_app() as (app, pilot):
        screen = app.screen
        screen.query_one("#way", Select).value = "file"
        listed = screen.query_one(FunctionList)
        await until(pilot, lambda: listed.display and listed.option_count)
        assert "mine.py" in screen_text(app) and "other.py" not in screen_text(app)
        screen.query_one("#reference", Input).focus()
        await pilot.press("enter")
        await until(pilot, lambda: screen.query_one("#reference", Input).value == "mine.py")
        await until(pilot, lambda: "scaled(x, weight, eps=1e-06)" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: screen.query_one("#reference", Input).value == "mine.py:scaled")
        inputs = screen.query_one("#inputs", Input)
        assert inputs.value == "x=bf16[M,N] weight=bf16[M,N] eps=1e-06"
        inputs.value = "x=bf16[M,N] weight=bf16[N] eps=1e-06"
        await until(pilot, lambda: "graph:" in graph(screen))
        assert "one kernel" in graph(screen) and "outputs: " in graph(screen)
        wishes = screen.query_one(Composer).wishes()
        assert wishes.reference is not None and wishes.reference.function == "scaled"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("function", "inputs", "words"),
    [
        pytest.param("sorted_rows", "x=f32[M,N]", ("no graph", "sort"), id="out of scope"),
        pytest.param("scaled", "x=bf16[M,N", ("bf16",), id="wrong inputs"),
    ],
)
async def test_a_refusal_comes_before_minting(
    open_app: Open, folder: Path, function: str, inputs: str, words: tuple[str, ...]
) -> None:
    async with open_app() as (app, pilot):
        screen = app.screen
        screen.query_one("#way", Select).value = "file"
        screen.query_one("#reference", Input).value = f"mine.py:{function}"
        screen.query_one("#inputs", Input).value = inputs
        await until(pilot, lambda: all(word in graph(screen) for word in words))
        assert "one kernel" not in graph(screen) and app.run_now is None


@pytest.mark.asyncio
async def test_pasted_code_becomes_a_function(open_app: Open, folder: Path) -> None:
    """Pasted code is kept in a file and is then as any other function."""
    async with open_app() as (app, pilot):
        screen = app.screen
        screen.query_one("#way", Select).value = "paste"
        screen.query_one("#pasted", TextArea).text = "def twice(x):\n    return x * 2\n"
        reference = screen.query_one("#reference", Input)
        await until(pilot, lambda: reference.value.endswith(".py:twice"))
        assert screen.query_one("#inputs", Input).value == "x=bf16[M,N]"
        await until(pilot, lambda: "graph:" in graph(screen))
        kept = screen.query_one(Composer).wishes().reference
        assert kept is not None and "return x * 2" in Path(kept.file).read_text()


def test_functions_are_listed_without_running(folder: Path) -> None:
    """The list has functions and modules, and no helper; nothing is imported for it."""
    (folder / "bad.py").write_text("import torch\nraise SystemExit(3)\ndef f(x): return x\n")
    assert [one.name for one in functions_of(folder / "bad.py")] == ["f"]
    assert [one.name for one in functions_of(folder / "mine.py")] == ["scaled", "sorted_rows"]
    assert functions_of(folder / "missing.py") == ()
