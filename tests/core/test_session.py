"""The session runner of both doors: its events, and the ways to end it early."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from kmint_tui.core.judges import Opened
from kmint_tui.core.session import Session
from kmint_tui.events import DraftFinished, Finished, MintEvent, Started
from kmint_tui.history.store import History
from kmint_tui.minting.request import MintRequest
from kmint_tui.models.check import check
from kmint_tui.models.store import Choice
from kmint_tui.smith.events import Event
from kmint_tui.smith.prompts import build
from kmint_tui.smith.sampling import Sampling
from referee.ops import get
from tests import tiny_models
from tests.mint.doubles import ScriptedReferee, ScriptedSmith, answer, kernel, tokens, verdict

if TYPE_CHECKING:
    from kmint_tui.service.work import Judging


@pytest.fixture(scope="module")
def request_(tmp_path_factory: pytest.TempPathFactory) -> MintRequest:
    path: Path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    model = Choice("tiny", check(tiny_models.llama(path)), None, "named by path")
    op = get("softmax")
    return MintRequest(op, "softmax", model, "ab" * 32, build(op, "card"), 2, 7, Sampling(), 64)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "history.db") as opened:
        yield opened


def judge() -> Opened:
    referee = ScriptedReferee({"good": verdict("correct"), "bad": verdict("rejected", "screen")})
    return Opened(cast("Judging", referee), "no GPU", False)


def smith(*, waits: bool = False) -> ScriptedSmith:
    """Writes a good and a bad kernel; with `waits` it never begins the second by itself."""
    events: list[Event] = [answer(0, kernel("good")), tokens(1), answer(1, kernel("bad"))]
    return ScriptedSmith(events, wait_after=1 if waits else None)


def test_every_event_reaches_the_sink(request_: MintRequest, history: History) -> None:
    seen: list[MintEvent] = []
    session = Session(request_, seen.append)
    result = session.run(smith=smith(), judge=judge(), history=history)
    assert isinstance(seen[0], Started) and seen[-1] == Finished(result)  # type: ignore[arg-type]
    assert result is not None and (result.state, result.best, result.passed) == ("done", 0, 1)
    assert (session.id, session.failure) == (result.session, None)


def test_a_stop_before_the_start_holds(request_: MintRequest, history: History) -> None:
    session = Session(request_, lambda event: None)
    session.stop()
    result = session.run(smith=smith(waits=True), judge=judge(), history=history)
    assert result is not None and result.state == "stopped"


def test_an_abandoned_session_has_no_result(request_: MintRequest, history: History) -> None:
    """The finished draft stays in the history."""

    def sink(event: MintEvent) -> None:
        if isinstance(event, DraftFinished):
            session.abandon()

    session = Session(request_, sink)
    assert session.run(smith=smith(waits=True), judge=judge(), history=history) is None
    assert session.id is not None
    assert history.session(session.id).state == "stopped"
    assert [draft.source for draft in history.drafts(session.id)] == [kernel("good")]


def test_an_error_of_the_sink_ends_the_session(request_: MintRequest, history: History) -> None:
    def sink(event: MintEvent) -> None:
        if isinstance(event, DraftFinished):
            raise RuntimeError("the reader is gone")

    session = Session(request_, sink)
    with pytest.raises(RuntimeError, match="the reader is gone"):
        session.run(smith=smith(waits=True), judge=judge(), history=history)
    assert session.id is not None
    assert history.session(session.id).state == "stopped"
