"""The claim about two GPUs, and the parts of its script that need none."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import two_gpus
from bench.claims.scaling import TWO_GPUS, compared
from bench.two_gpus import Bench, Step, figures, kernel_file, parsed, ran, shapes, show, steps
from kmint_tui.core.grid import wanted_cells
from kmint_tui.core.kernel_choice import chosen_kernel
from tests.book.examples import entry


def place(ratio: float | None, verdict: str = "win", kernel: str = "") -> dict[str, Any]:
    """One place of a command's document."""
    return {"verdict": verdict, "ratio": ratio, "kernel": kernel}


def part(two: dict[str, Any], *, seconds: float = 50.0) -> dict[str, Any]:
    """A part whose places on one GPU are a win, a tie, and a win of the kernel k."""
    one = {"a": place(2.0), "b": place(1.0, "tie"), "c": place(1.5, kernel="k")}
    return {
        "baselines_seconds": 30.0,
        "setup": {"seconds": 70.0, "code": 0},
        "one": {"seconds": 95.0, "code": 0, "places": one},
        "two": {"seconds": seconds, "code": 0, "places": two},
        "again": {"seconds": 95.0, "code": 0, "places": {"a": place(2.01)}},
    }


def test_a_run_becomes_a_table() -> None:
    two = {"a": place(2.01), "b": place(None, "rejected"), "c": place(3.0, kernel="other")}
    raw = {"cores": 32, "parts": {"grid": part(two), "book": {"setup": {}}}}
    found = TWO_GPUS.reduce(raw)
    assert found["parts"].keys() == {"grid"} and found["parts"]["grid"]["setup_seconds"] == 100.0
    assert list(TWO_GPUS.rows(found).values()) == [
        "95, 50; 1.90x",
        "b: tie and rejected",
        "median 0.5 %, largest 0.5 % of 1",
        "median 0.5 %, largest 0.5 % of 1",
    ]


def test_a_place_that_one_run_lacks_is_no_like_verdict() -> None:
    found = compared(part({"a": place(2.0), "d": place(1.0)}))
    assert found["unlike"].keys() == {"b", "c", "d"}


@pytest.mark.parametrize(
    ("changed", "seconds", "holds"),
    [
        ({}, 50.0, True),
        ({}, 60.0, False),
        ({"a": place(2.05)}, 50.0, False),
        ({"b": place(1.0, "unsure")}, 50.0, False),
    ],
)
def test_the_script_says_whether_the_claim_holds(
    changed: dict[str, Any], seconds: float, holds: bool
) -> None:
    raw = {"parts": {"grid": part({**part({})["one"]["places"], **changed}, seconds=seconds)}}
    assert show(raw) == holds


def test_a_part_that_is_not_whole_does_not_hold() -> None:
    stopped = {**part({}), "two": {"seconds": 9.0, "code": None, "places": {}}}
    assert not show({"parts": {"book": stopped}})


def test_the_grid_has_the_wanted_cells_for_a_kernel_that_is_one(tmp_path: Path) -> None:
    kernel = chosen_kernel(str(kernel_file(tmp_path)), two_gpus.OP)
    assert len(wanted_cells(kernel, shapes(40), None)) == 40
    assert len(wanted_cells(kernel, shapes(7), None)) == 7


def test_each_part_runs_on_two_then_one_then_two() -> None:
    for name in two_gpus.PARTS:
        found = steps(name, cells=2, ops=3, drafts=8, kernel=Path("k.py"), again=True)
        assert [step.words[-2] for step in found] == ["2", "1", "2", "1"]
        assert [bool(step.forgets) for step in found] == [False, True, True, True]
    assert ",".join(["rmsnorm", "add_rmsnorm", "swiglu"]) in found[0].words


@pytest.mark.parametrize("words", [["--cells", "0"], ["--cells", "41"], ["--ops", "0"], []])
def test_bad_options_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--json", "x.json", *words] if words else []
    with pytest.raises(SystemExit) as ended:
        parsed(given)
    assert ended.value.code == 2 and capsys.readouterr().err


def test_places_are_read_from_both_documents() -> None:
    from dataclasses import asdict

    point = {"rows": 8, "columns": 4, "dtype": "float16", "decision": "tie", "ratio": 1.0}
    assert figures("grid", {"points": [point]}) == {"8x4 float16": place(1.0, "tie")}
    one = asdict(entry(ratio=2.0))
    (found,) = figures("book", {"entries": [one]}).values()
    assert found == place(2.0, kernel=one["source_sha256"][:12])


def test_a_command_is_stopped_at_its_limit(tmp_path: Path) -> None:
    said = "import sys, time; print('begun', file=sys.stderr, flush=True); time.sleep(600)"
    done = ran([sys.executable, "-c", said], tmp_path, 2.0)
    assert done.code is None and done.document == {} and done.seconds < 60
    whole = ran([sys.executable, "-c", "print('{\"a\": 1}')"], tmp_path, 60.0)
    assert (whole.code, whole.document) == (0, {"a": 1})


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_gpus, "devices", lambda: ["NVIDIA H200"] * 2)
    begun: list[str] = []

    def listed(name: str, **_: object) -> list[Step]:
        return [Step(name, one, ("ops", "--json"), ("data/books",)) for one in ("setup", "one")]

    def counted(words: list[str], home: Path, seconds: float) -> two_gpus.Ran:
        begun.append(words[-2])
        return ran(words, home, seconds)

    monkeypatch.setattr(two_gpus, "steps", listed)
    monkeypatch.setattr(two_gpus, "ran", counted)
    file, home = tmp_path / "raw.json", tmp_path / "home"
    given = ["--json", str(file), "--part", "book", "--seconds"]
    Bench(parsed([*given, "0"]), file, home).run("book")
    assert not begun and not file.exists()
    Bench(parsed([*given, "600"]), file, home).run("book")
    assert begun == ["ops"] * 2
    kept = json.loads(file.read_text())
    assert [kept["parts"]["book"][one]["code"] for one in ("setup", "one")] == [0, 0]
    Bench(parsed([*given, "600"]), file, home).run("book")
    assert len(begun) == 2
    # On another machine a part that goes on begins with its set-up.
    Bench(parsed([*given, "600"]), file, tmp_path / "other").run("book")
    assert len(begun) == 4
    with pytest.raises(SystemExit, match="another plan"):
        Bench(parsed([*given, "600", "--ops", "3"]), file, home)
