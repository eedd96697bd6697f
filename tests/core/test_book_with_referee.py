"""A whole build: the embedded smith, the referee and the tuner are real; without a GPU a stand-in
times the kernels.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kmint_tui import paths
from kmint_tui.book import store
from kmint_tui.book.records import Place
from kmint_tui.core.book.building import Build
from kmint_tui.core.book.entries import versions_here
from kmint_tui.core.book.planning import plan
from kmint_tui.core.book.progress import BuildEvent, Built, Done
from kmint_tui.core.book.rejudging import rejudge
from kmint_tui.core.judges import of_referee
from kmint_tui.history.store import History
from kmint_tui.models import registry
from kmint_tui.models.store import EMBEDDED, resolve
from kmint_tui.smith import Options, Smith
from referee.judge import Referee
from tests.cli.runner import kmint
from tests.core.timing_stand_in import BAR_US, BEST_US, DEVICE, TIMED, TimingStandIn

SHAPE = "64x1024"


@pytest.fixture
def referee(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Referee]:
    monkeypatch.setattr("referee.judge.Replayer", TimingStandIn)
    # The nearest variants are enough: one of them has the 8 warps.
    monkeypatch.setattr("kmint_tui.minting.tuning.MOST_VARIANTS", 6)
    with Referee(cache=tmp_path / "referee") as opened:
        yield opened


def built(referee: Referee, tmp_path: Path) -> tuple[Built, list[Done]]:
    """The book of one operation at one shape, with two drafts."""
    events: list[BuildEvent] = []
    own = store.read("own", DEVICE)
    found = plan(("silu",), (SHAPE,), "bf16", own, versions=versions_here())
    model = resolve(registry.load(paths.user_models_file()), EMBEDDED).file.path
    with (
        History(paths.private_dir(paths.data_dir()) / "history.db") as history,
        Smith(model, Options(log=tmp_path / "smith.log", gpu_layers=0, allow_cpu=True)) as smith,
    ):
        build = Build(
            opened=of_referee(referee),
            smith=smith,
            history=history,
            device=DEVICE,
            work=found.work,
            drafts=2,
            rivals=store.load(DEVICE)[0],
            tell=events.append,
        )
        result = build.run()
    return result, [event for event in events if isinstance(event, Done)]


def test_a_book_is_built_kept_and_judged_again(referee: Referee, tmp_path: Path) -> None:
    result, events = built(referee, tmp_path)
    assert (result.failures, result.left) == ((), ())
    assert [event.work.op.name for event in events] == ["silu"]
    book, origins = store.load(DEVICE)
    (entry,) = book.entries
    assert origins == {Place("silu", "64x1024", "bfloat16"): "own"}
    # The sweep found the 8 warps that the stand-in favours, and the verdict holds their time.
    assert entry.author == "tuner" and "num_warps" in entry.changes
    assert "num_warps=8" in book.source(entry)
    assert entry.figures.us == BEST_US and entry.figures.ratio == BAR_US / BEST_US
    assert entry.figures.baselines == {"eager": 30.0, "compile": BAR_US}
    assert entry.made_with(*versions_here()) and entry.date and entry.versions["referee"]
    assert result.profile.verdicts >= 1 and result.profile.contests.tuning > 0

    timed = len(TIMED)
    again, _ = built(referee, tmp_path)
    assert (again.entries, len(TIMED)) == ((), timed)

    found = rejudge(of_referee(referee), book, None, lambda one: None)
    assert [one.difference for one in found] == [0.0] and len(TIMED) == timed + 1
    assert store.load(DEVICE)[0] == book

    saved = kmint("book", "save", "silu", "--to", str(tmp_path / "kernels"), "--json")
    assert saved.code == 0, saved.err
    receipt = json.loads((tmp_path / "kernels" / "silu.receipt.json").read_text())
    assert receipt["verdict"]["verdict"] == "correct"
    assert "book of" in receipt["model"]["id"] and saved.document["left_out"] == []
