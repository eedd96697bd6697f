"""What the line of facts says of the GPU, and what the pictures of times are made of."""

from __future__ import annotations

import os

import pytest

from kmint_tui.core import facts
from kmint_tui.core.facts import Facts, users
from kmint_tui.widgets.screen_bars import FactsBar
from kmint_tui.widgets.spread import density, spread
from tests.tui.conftest import Open, settle, toasts
from tests.tui.filled import TIMING


@pytest.mark.parametrize(
    ("lines", "load", "said"),
    [
        ([], "0", None),
        (["10, 800, /usr/bin/python3"], "90", None),
        (["4242, 12288, /opt/train/python3"], "0", "python3 (4242) 12.0 GiB"),
        (["10, 1, a", "4242, [N/A], /x/a, b", "7, 1, c"], "0", "a, b (4242) and 1 more"),
        ([], "87", "another program, 87 % load"),
        ([], "4", None),
        ([], "[N/A]", None),
    ],
)
def test_who_uses_the_gpu(lines: list[str], load: str, said: str | None) -> None:
    assert users(lines, load, {10, 11}) == said


def test_own_processes_hold_this_one_and_its_children() -> None:
    own = facts._own_processes()
    assert os.getpid() in own
    assert os.getppid() not in own


@pytest.mark.asyncio
async def test_a_gpu_that_others_use_is_named_and_warned_of(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = Facts("embedded", "on CPU", "H200 98.0 GiB free", None, "python3 (4242) [12] GiB")
    monkeypatch.setattr(facts, "collect", lambda smith, offline=False: busy)
    async with open_app((120, 36)) as (app, pilot):
        await settle(pilot)
        shown = str(app.screen.query_one(FactsBar).render())
        assert "GPU busy: python3 (4242) [12] GiB" in shown
        app.screen.query_one("#model").set_options([("none", "none.gguf")])  # type: ignore[attr-defined]
        app.screen.query_one("#model").value = "none.gguf"  # type: ignore[attr-defined]
        await pilot.press("f5")
        await settle(pilot)
        assert "Times will be less certain" in toasts(app)


def test_the_spread_has_the_kernel_first_and_all_of_its_times() -> None:
    lines = [line.plain for line in spread(TIMING, width=40)]
    assert lines[0].startswith("this kernel")
    assert "40.9 to 42.0" in lines[0]
    assert lines[-2].startswith("floor (copy)")
    assert sum(density([1, 2, 3, 4, 5], 0, 6, 12)) == pytest.approx(1)
    assert density([1, 2, 3, 4, 5], 0, 6, 6) == pytest.approx([0, 0.25, 0.25, 0.25, 0.25, 0])


def test_times_without_deciles_have_no_picture() -> None:
    assert spread({"device": {"candidate": {"median": 4.0, "p10": 3.9, "p90": 4.1, "n": 3}}}) == []
    assert spread({}) == []


def test_times_that_are_all_the_same_are_one_peak() -> None:
    line = spread(
        {
            "device": {
                "candidate": {"median": 4.0, "p10": 4.0, "p90": 4.0, "n": 3, "deciles": [4.0] * 11}
            }
        },
        width=21,
    )[0]
    assert line.plain.count("█") == 1
