"""Shapes in the application: asked for in the form, and shown with the ratio at each."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.widgets import Input, Select, Static, TabbedContent

from kmint_tui import paths
from kmint_tui.core.rejudge import task_of
from kmint_tui.core.shape_times import by_shape
from kmint_tui.history.store import History
from kmint_tui.history.verdicts import verdict_document
from kmint_tui.screens.mint import MintScreen
from kmint_tui.typed import Mistyped
from kmint_tui.widgets.bars import TimeBars, ratio_bars
from kmint_tui.widgets.composer import Composer
from kmint_tui.widgets.shape_fields import ShapeFields
from referee.problem import TaskName
from tests.tui.conftest import Open, screen_text, settle, toasts
from tests.tui.filled import BY_SHAPE, TIMING, fill, fill_shapes, timing_by_shape

NAMES = tuple(f"{rows}x4096:bfloat16" for rows, _ in BY_SHAPE)


@pytest.mark.asyncio
async def test_the_form_takes_shapes_and_a_dtype(open_app: Open) -> None:
    async with open_app((120, 36)) as (app, pilot):
        screen, composer = app.screen, app.screen.query_one(Composer)
        told = screen.query_one("#shapes-told", Static)
        assert composer.wishes().shapes == () and composer.wishes().dtype is None
        screen.query_one("#shapes", Input).value = "Mx4096, 512x128:fp32"
        screen.query_one("#dtype", Select).value = "bf16"
        await pilot.pause()
        assert "32768x4096:bf16, 512x128:fp32" in str(told.content)
        wishes = composer.wishes()
        assert (wishes.shapes, wishes.dtype) == (("Mx4096", "512x128:fp32"), "bf16")
        asked = "--shape Mx4096 --shape 512x128:fp32 --dtype bf16"
        assert isinstance(screen, MintScreen)
        assert screen.cli_command() == f"kmint mint rmsnorm {asked} --drafts 8"
        screen.query_one("#shapes", Input).value = ""
        await pilot.pause()
        assert str(told.content) == "8192x4096 in bf16"
        screen.query_one("#way", Select).value = "file"
        await pilot.pause()
        assert not screen.query_one(ShapeFields).display
        screen.query_one("#reference", Input).value = "mine.py:f"
        assert composer.wishes().dtype is None


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("op", "shape", "words"),
    [
        ("softmax", "Mx0", "'Mx0' is no shape"),
        ("softmax", "8x8:fp8", "fp8 is none of"),
        ("softmax", "999999x999999", "GiB in one tensor"),
        ("rope", "8x127", "turns pairs of columns, and 127 is odd"),
        ("dequant_int8", "64x64:bf16", "gives float16 alone, and not bfloat16"),
        ("logsumexp", "8x8", "the examples of logsumexp say its sizes"),
    ],
)
async def test_a_wrong_shape_is_told_and_nothing_begins(
    open_app: Open, op: str, shape: str, words: str
) -> None:
    """The form stays open, with the words of the command line."""
    async with open_app((120, 36)) as (app, pilot):
        screen = app.screen
        screen.query_one("#way", Select).value = "list"
        screen.query_one("#op", Input).value = op
        screen.query_one("#shapes", Input).value = shape
        await pilot.pause()
        told = screen.query_one("#shapes-told", Static)
        assert words in str(told.content) and told.has_class("-refused")
        await pilot.press("f5")
        await pilot.pause()
        assert app.run_now is None and not screen.query_one(Composer).has_class("-folded")
        assert words in toasts(app) and "--shape Mx1024" in toasts(app)


@pytest.mark.asyncio
async def test_a_draft_shows_its_ratio_at_each_shape(open_app: Open) -> None:
    fill()
    fill_shapes()
    async with open_app((200, 60)) as (app, pilot):
        app.open_draft("4.0")
        await settle(pilot)
        app.screen.query_one(TabbedContent).active = "tab-time"
        await settle(pilot)
        shown = str(app.screen.query_one(TimeBars).content)
        for rows, _ in BY_SHAPE:
            assert f"{rows}x4096:bf16" in shown
        assert "losses: 32768x4096:bf16" in shown
        assert f"geometric mean {timing_by_shape()['geometric_mean']:.3f}x" in shown
        assert "bf16-64x4096-asked-x1" in shown and "39.5 us" in shown
        assert "32768x4096:bf16 " in screen_text(app)


def test_a_bar_crosses_the_mark_where_the_kernel_is_faster() -> None:
    found = by_shape(timing_by_shape())
    assert found is not None
    *wins, loss = [line.plain for line in ratio_bars(found)[: len(BY_SHAPE)]]
    assert "│" in loss and not any("│" in line for line in wins)
    lengths = [line.count("━") for line in (*wins, loss)]
    assert lengths == sorted(lengths, reverse=True) and lengths[0] > lengths[-1]
    assert found.lost == ("32768x4096:bf16",)


def test_a_shape_without_a_ratio_leaves_no_mean() -> None:
    timing = timing_by_shape()
    timing["shapes"][1] = {**timing["shapes"][1], "ratio": None}
    timing["shapes"][2] = {**timing["shapes"][2], "ratio": {"ratio": -1.0}}
    found = by_shape(timing)
    assert found is not None and len(found.rows) == 2 and found.mean is None
    lines = [line.plain for line in ratio_bars(found)]
    assert "bf16-64x4096-asked-x1: no ratio" in lines
    assert not any("geometric mean" in line for line in lines)
    assert by_shape(TIMING) is None and by_shape(None) is None


@pytest.mark.parametrize("shapes", [7, [7], [{"cell": 7}], [{"device": []}], [{"decision": 1}]])
def test_times_of_a_wrong_type_are_no_verdict(shapes: object) -> None:
    verdict = {"verdict": "win", "timing": {**TIMING, "shapes": shapes}}
    with pytest.raises(Mistyped):
        verdict_document(verdict)


def test_a_draft_is_judged_again_at_the_shapes_of_its_session() -> None:
    fill()
    fill_shapes()
    with History(paths.history_file()) as history:
        session, usual = history.session(4), history.session(1)
    assert task_of(session, None) == TaskName("softmax", shapes=NAMES)
    assert task_of(usual, None) == "softmax"
    odd = replace(session, settings={"shapes": "8x8"})
    assert task_of(odd, None) == "softmax"
