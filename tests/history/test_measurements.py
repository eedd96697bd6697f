"""Gates and grids stay with their kernel, and go with the draft they are of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kmint_tui import paths
from kmint_tui.history.measurements import Measurements, NewMeasurement
from kmint_tui.history.records import Reference
from kmint_tui.history.store import History
from kmint_tui.history.transfer import remove
from tests.cli.runner import kmint
from tests.history.test_history import SESSION, draft

pytestmark = pytest.mark.usefixtures("warm")

MADE = NewMeasurement(
    kind="gate",
    name="1.0",
    draft=Reference(1, 0),
    source_sha256="ab" * 32,
    op="softmax",
    device="a GPU",
    torch="2.11",
    triton="3.6",
    result="survived",
    document={"ratio": 1.2, "low": float("nan")},
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "history.db"
    with History(file) as history:
        session = history.begin(SESSION)
        history.add_draft(session, draft(0))
        history.add_draft(session, draft(1, "other"))
    return file


def test_everything_comes_back_the_newest_first(path: Path) -> None:
    with Measurements(path) as store:
        first = store.add(MADE)
        second = store.add(
            replace(MADE, kind="grid", name="kernel.py", draft=None, result="2 of 12 cells lose")
        )
        store.add(replace(MADE, source_sha256="cd" * 32))
        found = store.of("ab" * 32)
    assert [(one.id, one.kind, one.name, one.result) for one in found] == [
        (second, "grid", "kernel.py", "2 of 12 cells lose"),
        (first, "gate", "1.0", "survived"),
    ]
    assert found[0].document == {"ratio": 1.2, "low": None}
    assert (found[1].op, found[1].device, found[1].torch, found[1].triton) == (
        "softmax",
        "a GPU",
        "2.11",
        "3.6",
    )


@pytest.mark.parametrize(
    ("gone", "left"), [(Reference(1, 0), 2), (Reference(1, 1), 2), (Reference(1, None), 1)]
)
def test_a_draft_s_measurements_go_with_it(path: Path, gone: Reference, left: int) -> None:
    with Measurements(path) as store:
        for where in (Reference(1, 0), Reference(1, 1), None):
            store.add(replace(MADE, draft=where))
    remove(path, gone)
    with Measurements(path) as store:
        assert len(store.of("ab" * 32)) == left


def test_a_draft_is_shown_with_its_measurements(kmint_home: Path) -> None:
    with History(paths.history_file()) as history:
        session = history.begin(SESSION)
        history.add_draft(session, draft(0))
        digest = history.draft(session, 0).source_sha256
    with Measurements(paths.history_file()) as store:
        store.add(replace(MADE, source_sha256=digest))
    done = kmint("history", "show", "1.0")
    assert any(line.split()[:2] == ["gate", "survived"] for line in done.out.splitlines()), done.out
    (one,) = kmint("history", "show", "1.0", "--json").document["measurements"]
    assert (one["kind"], one["result"], one["device"]) == (
        "gate",
        "survived",
        "a GPU",
    ) and "document" not in one


def test_a_draft_that_went_away_in_the_meantime(path: Path) -> None:
    remove(path, Reference(1, 0))
    with Measurements(path) as store:
        store.add(MADE)
        assert [one.name for one in store.of("ab" * 32)] == ["1.0"]
