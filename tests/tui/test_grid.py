"""Grid: the heat map of a recorded grid, its losing cells, grids from files, and what is said
without a GPU.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from rich.style import Style
from textual.widgets import Static

from kmint_tui.core import grid_run
from kmint_tui.core.grid_report import load
from kmint_tui.errors import UsageError
from kmint_tui.screens.grid import GridScreen
from kmint_tui.widgets.heat_map import HeatMap
from kmint_tui.widgets.table import Table
from referee.grid import SCHEMA
from tests.tui.conftest import Open, screen_text, settle, toasts
from tests.tui.filled import DEVICE, fill, fill_grid, grid_document, grid_points


async def grid_screen(app: object, pilot: object) -> GridScreen:
    app.action_show_mode("grid")  # type: ignore[attr-defined]
    await settle(pilot)  # type: ignore[arg-type]
    screen = app.screen  # type: ignore[attr-defined]
    assert isinstance(screen, GridScreen)
    return screen


@pytest.mark.asyncio
async def test_every_cell_and_every_loss_is_shown(open_app: Open) -> None:
    fill()
    fill_grid()
    async with open_app((120, 36)) as (app, pilot):
        screen = await grid_screen(app, pilot)
        shown = screen_text(app)
        for text in (
            "1.310 +",
            "1.004 =",
            "0.930 -",
            "rejected x",
            "error !",
            "16384 x 2048",
            "bfloat16",
        ):
            assert text in shown
        losing = screen.query_one("#losing", Table)
        assert len(losing.rows) == 4
        assert "wins at 6 and loses at 4 of 12 cells" in str(
            screen.query_one("#head", Static).content
        )
        heat_map = screen.query_one(HeatMap)
        assert heat_map.point is not None
        assert heat_map.point.place == (1024, 4096, "float16")
        await pilot.press("l")
        assert heat_map.point.place == (1024, 4096, "bfloat16")
        await pilot.press("n")
        assert heat_map.point.place == (16384, 2048, "float16")
        assert "0.930 (0.920 to 0.940) of compile" in str(screen.query_one("#cell", Static).content)
        await pilot.press("n", "n")
        assert heat_map.point.decision == "rejected"
        assert "3 of 33554432 elements are off" in str(screen.query_one("#cell", Static).content)
        await pilot.press("y")
        assert "losing: 256 x 16384 float16" in app.clipboard


@pytest.mark.asyncio
async def test_stronger_wins_and_losses_have_stronger_colours(open_app: Open) -> None:
    fill()
    fill_grid()
    async with open_app((120, 36)) as (app, pilot):
        heat_map = (await grid_screen(app, pilot)).query_one(HeatMap)

        def ground(shape: str, dtype: str) -> tuple[int, int, int]:
            style = Style.parse(str(heat_map.get_cell(shape, dtype).spans[-1].style))
            assert style.bgcolor is not None
            assert style.bgcolor.triplet is not None
            return tuple(style.bgcolor.triplet)  # type: ignore[return-value]

        strong, weak = ground("1024x4096", "float16"), ground("8192x4096", "float16")
        assert strong[1] > weak[1] > weak[0]
        loss, worse = ground("16384x2048", "float16"), ground("256x16384", "float16")
        assert worse[0] > loss[0] > loss[1]


def record(path: Path, points: int) -> Path:
    head = {"schema": SCHEMA, "identity": {"source_sha256": "ab", "op": "softmax", **DEVICE}}
    lines = [json.dumps(head), *(json.dumps(asdict(point)) for point in grid_points()[:points])]
    path.write_text("\n".join(lines) + '\n{"rows": 12')
    return path


def test_a_report_and_an_unfinished_record_are_read(tmp_path: Path) -> None:
    (tmp_path / "grid.json").write_text(json.dumps(grid_document(), indent=2))
    whole = load(tmp_path / "grid.json")
    assert (whole.name, whole.op, whole.device) == (
        "1.1",
        "softmax",
        "NVIDIA H200, torch 2.11.0, triton 3.6.0",
    )
    assert list(whole.points) == grid_points()
    part = load(record(tmp_path / "grid.jsonl", 5))
    assert (part.op, len(part.points)) == ("softmax", 5)


@pytest.mark.parametrize(
    "text",
    ["", "nothing", "[]", "{}", '{"schema": "kmint.mint/1", "points": []}', '{"points": [{"rows": 1}]}', '{"points": [7]}',
     '{"points": [{"rows": 1, "columns": 1, "dtype": "float16", "decision": "win", "ratio": -1}]}',
     '{"points": [{"rows": 1, "columns": 1, "dtype": "float16", "decision": "win", "ratio": "x"}]}'],
)  # fmt: skip
def test_what_is_no_grid_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "grid.json").write_text(text)
    with pytest.raises(UsageError, match="is not a grid report"):
        load(tmp_path / "grid.json")


@pytest.mark.asyncio
async def test_without_a_gpu_a_grid_can_be_opened_but_not_measured(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kmint_tui.screens.grid.no_gpu_reason", lambda: "no CUDA device")
    async with open_app((120, 36)) as (app, pilot):
        screen = await grid_screen(app, pilot)
        assert "Nothing can be timed here: no CUDA device" in screen_text(app)
        await pilot.press("r")
        assert "a grid is measured on a GPU: no CUDA device" in toasts(app)
        await pilot.press("o")
        await pilot.pause()
        await pilot.press(*str(tmp_path / "none.json"), "enter")
        await pilot.pause()
        assert "none.json cannot be read" in toasts(app)
        await pilot.press("o")
        await pilot.pause()
        await pilot.press(*str(record(tmp_path / "grid.jsonl", 12)), "enter")
        await pilot.pause()
        assert screen.report is not None
        assert len(screen.report.points) == 12
        assert "1.310 +" in screen_text(app)


@pytest.mark.asyncio
async def test_measuring_shows_cells_as_they_come_and_can_be_cancelled(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill()
    points = grid_points()
    monkeypatch.setattr("kmint_tui.screens.grid.no_gpu_reason", lambda: None)
    monkeypatch.setattr(grid_run, "need_gpu", lambda what: None)
    async with open_app((120, 36)) as (app, pilot):
        shown: list[int] = []

        def measured(
            kernel: object,
            cells: list[object],
            err: object,
            *,
            again: bool,
            demand: object,
            on_point: object,
        ) -> None:
            assert len(cells) == len(points)
            for count, point in enumerate(points):
                if count == 3:
                    app.jobs.cancel_all()
                shown.append(count)
                on_point(point)  # type: ignore[operator]

        monkeypatch.setattr(grid_run, "measured", measured)
        app.open_draft("1.0")
        await settle(pilot)
        await pilot.press("t")
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, GridScreen)
        assert shown == [0, 1, 2, 3]
        assert screen.report is not None
        assert (screen.report.name, len(screen.report.points)) == ("1.0", 4)
        assert "1.0: stopped; the finished cells are kept" in toasts(app)
        assert not app.jobs.titles


@pytest.mark.asyncio
async def test_nothing_disturbs_what_is_being_timed(open_app: Open) -> None:
    fill()
    async with open_app() as (app, pilot):
        with app.jobs.begin("measuring the grid of 1.0", timing=True):
            await pilot.press("f5")
            assert app.run_now is None
            assert "measuring the grid of 1.0; a session would disturb its times" in toasts(app)
            app.open_draft("1.0")
            await settle(pilot)
            await pilot.press("r")
            assert "judging a draft again would disturb its times" in toasts(app)
