"""`kmint selftest`: the matrix of a few known kernels, judged for real, and how a mistake of the
referee is told.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kmint_tui import __version__
from kmint_tui.cli.selftest import show_report
from kmint_tui.cli.streams import Output
from referee.selftest.runner import Result, SelftestReport, run, specimens
from tests.cli.runner import kmint

pytestmark = pytest.mark.usefixtures("warm")

CHEAT = "001_forge_at_import"
RIGHT = Result(
    "cheats",
    CHEAT,
    "softmax",
    "a forgery",
    "right",
    ("screen_host",),
    "screen_host",
    "imports os",
    0.1,
)


def test_a_cheat_is_judged_with_and_without_the_screen() -> None:
    done = kmint("selftest", "--only", "cheats", "--name", CHEAT, "--json")
    document = done.document
    assert (done.code, document["schema"], document["kmint_version"]) == (
        0,
        "kmint.selftest/1",
        __version__,
    )
    assert (document["passed"], document["failures"]) == (True, [])
    assert [result["row"] for result in document["results"]] == [
        "cheats",
        "cheats behind the screen",
    ]
    assert sum(sum(row.values()) for row in document["matrix"].values()) == 2


def test_the_matrix_of_gold_kernels() -> None:
    done = kmint("selftest", "--only", "gold", "--name", "relu2")
    assert done.code == 0, done.out
    assert done.out.splitlines()[0].split() == [
        "accepted",
        "intended",
        "guard",
        "another",
        "guard",
        "error",
    ]
    assert done.out.splitlines()[1].startswith("gold ")
    assert done.out.splitlines()[-1].startswith("passed: ")


def test_a_name_that_nothing_has_is_exit_2() -> None:
    done = kmint("selftest", "--name", "nothing is called this")
    assert (done.code, done.out) == (2, "")
    assert "nothing is called this" in done.err


def test_a_kind_that_is_none_is_exit_2() -> None:
    done = kmint("selftest", "--only", "silver")
    assert (done.code, done.out) == (2, "")
    assert "gold" in done.err


def test_a_right_verdict_from_the_wrong_guard_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    astray = replace(RIGHT, status="wrong guard", guard="timeout", reason="it took too long")
    report = SelftestReport("interpret", (RIGHT, astray), {}, 1.0)
    assert not report.passed
    show_report(Output(), report)
    out = capsys.readouterr().out
    (line,) = [line for line in out.splitlines() if line.startswith("wrong guard")]
    assert all(word in line for word in (CHEAT, "screen_host", "timeout", "it took too long"))
    assert out.splitlines()[-1].startswith("failed: 2 verdicts (interpret), 1 mistakes, 0 skipped")


def test_a_stop_keeps_the_verdicts_that_were_made(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = specimens(("cheats",), "00")
    made: list[Result] = []
    report = run(
        chosen, mode="interpret", threads=1, on_result=made.append, stopped=lambda: bool(made)
    )
    assert list(report.results) == made and 1 <= len(made) < len(chosen)
    assert report.unjudged == 2 * len(chosen) - len(made) == report.to_json()["unjudged"]
    assert all(one.status == "right" for one in made) and not report.passed
    show_report(Output(), report)
    assert capsys.readouterr().out.splitlines()[-1].startswith("stopped: ")
