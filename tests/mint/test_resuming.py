"""A session that goes on: nothing that is in the history is made or judged again."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kmint_tui.errors import UsageError
from kmint_tui.events import DraftFinished, Judged, MintEvent
from kmint_tui.history.store import History
from kmint_tui.mint import Mint
from kmint_tui.minting.resuming import resumed
from kmint_tui.models.store import Choice
from kmint_tui.smith.events import Event
from kmint_tui.smith.sampling import draft_seed
from tests.cli.runner import kmint
from tests.cli.test_bad_input import refused
from tests.mint.doubles import RoundsSmith, ScriptedReferee, answer, kernel, verdict
from tests.mint.test_mint import history, last, model, request
from tests.save.test_host_code import GOOD as SOFTMAX

pytestmark = pytest.mark.usefixtures("warm")

__all__ = ["history", "model"]

GOOD, BAD = verdict("correct"), verdict("rejected", "trace")
VERDICTS = {"good": GOOD, "bad": BAD, "better": GOOD, "late": GOOD}
FIRST: list[Event] = [
    answer(0, kernel("good")),
    answer(1, kernel("bad")),
    answer(2, kernel("late")),
]
SECOND: list[Event] = [answer(0, kernel("better"))]


def judged(count: int) -> Callable[[MintEvent, int], bool]:
    """Ends a session after this number of verdicts."""
    return lambda event, seen: isinstance(event, Judged) and seen == count


def drafted(count: int) -> Callable[[MintEvent, int], bool]:
    """Ends a session after this number of drafts."""
    return lambda event, seen: isinstance(event, DraftFinished) and seen == count


def broken(model: Choice, history: History, ends: Callable[[MintEvent, int], bool]) -> None:
    """A session of two rounds that is left at an event."""
    smith, seen = RoundsSmith(FIRST, SECOND), dict[type, int]()
    mint = Mint(
        request(model, 3, repair=1), smith=smith, judge=ScriptedReferee(VERDICTS), history=history
    )
    with closing(mint.run()) as events:
        for event in events:
            seen[type(event)] = seen.get(type(event), 0) + 1
            if ends(event, seen[type(event)]):
                return


@pytest.mark.parametrize(
    ("ends", "rounds"),
    [
        (drafted(1), [FIRST, SECOND]),
        (drafted(2), [FIRST, SECOND]),
        (drafted(3), [SECOND]),
        (judged(1), None),
        (judged(3), [SECOND]),
        (drafted(4), []),
        (judged(4), []),
    ],
)
def test_a_session_goes_on_wherever_it_was_left(
    model: Choice,
    history: History,
    ends: Callable[[MintEvent, int], bool],
    rounds: list[list[Event]] | None,
) -> None:
    broken(model, history, ends)
    before = {row.number: row for row in history.drafts(1) if row.finish != "cancelled"}
    missing = tuple(number for number in range(3) if number not in before)
    if rounds is None:
        rounds = [FIRST, SECOND] if missing else [SECOND]
    smith, referee = RoundsSmith(*rounds), ScriptedReferee(VERDICTS)
    earlier = resumed(1, history.drafts(1))
    mint = Mint(
        request(model, 3, repair=1), smith=smith, judge=referee, history=history, earlier=earlier
    )
    result = last(list(mint.run()))
    assert (result.session, result.state) == (1, "done")
    assert [draft.source for draft in result.drafts] == [
        kernel(word) for word in ("good", "bad", "late", "better")
    ]
    assert [(draft.round, draft.parent) for draft in result.drafts][3] == (1, 1)
    after = {row.number: row for row in history.drafts(1)}
    assert {number: row.outcome for number, row in after.items()} == {
        0: "correct",
        1: "rejected",
        2: "correct",
        3: "correct",
    }
    known = {row.source for row in before.values() if row.verdict is not None}
    assert not known & {kernel(word) for word, _ in referee.questions}
    assert len(smith.only) == len(rounds)
    if len(rounds) == 2:
        assert smith.only[0] == (() if len(missing) == 3 else missing)
    assert history.session(1).state == "done" and len(history.summaries()) == 1


def test_a_verdict_of_error_is_made_again(model: Choice, history: History) -> None:
    smith = RoundsSmith([answer(0, kernel("good"))])
    broken_referee = ScriptedReferee({"good": verdict("error")})
    list(Mint(request(model, 1), smith=smith, judge=broken_referee, history=history).run())
    referee = ScriptedReferee(VERDICTS)
    mint = Mint(
        request(model, 1),
        smith=RoundsSmith(),
        judge=referee,
        history=history,
        earlier=resumed(1, history.drafts(1)),
    )
    assert last(list(mint.run())).best == 0 and referee.questions == [("good", "full")]


def test_a_checked_kernel_is_timed_where_a_gpu_is(model: Choice, history: History) -> None:
    smith = RoundsSmith([answer(0, kernel("good"))])
    list(
        Mint(request(model, 1), smith=smith, judge=ScriptedReferee(VERDICTS), history=history).run()
    )
    referee = ScriptedReferee({"good@full": verdict("win", ratio=1.5)})
    for asked in ([("good", "full")], []):
        mint = Mint(
            request(model, 1),
            smith=RoundsSmith(),
            judge=referee,
            history=history,
            times=True,
            earlier=resumed(1, history.drafts(1)),
        )
        assert last(list(mint.run())).best == 0 and referee.questions == asked
    assert history.draft(1, 0).outcome == "win"


def test_a_session_of_a_living_process_does_not_go_on(model: Choice, history: History) -> None:
    history.begin(request(model, 1).to_session())
    with pytest.raises(UsageError, match="runs in another process"):
        history.reopen(1)
    with pytest.raises(UsageError, match="is gone"):
        history.reopen(2)


def rows(home: Path) -> dict[int, tuple[int, str | None]]:
    """Seed and verdict of each draft in the history."""
    file = home / "data" / "history.db"
    if not file.exists():
        return {}
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as opened:
        query = "SELECT number, seed, verdict FROM drafts"
        try:
            return {number: (seed, said) for number, seed, said in opened.execute(query)}
        except sqlite3.OperationalError:
            return {}


def test_a_killed_command_goes_on(kmint_home: Path, tmp_path: Path) -> None:
    kernel_file = tmp_path / "softmax.py"
    kernel_file.write_text(SOFTMAX, encoding="utf-8")
    words = ["mint", "silu", "--drafts", "6", "--seed", "3", "--temperature", "1.2", "--jsonl"]
    command = [sys.executable, "-m", "kmint_tui", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ
    ) as driver:
        assert driver.stdout is not None
        for line in driver.stdout:
            if b'"final"' in line:
                break
        driver.send_signal(signal.SIGKILL)
    before = rows(kmint_home)
    assert any(said for _, said in before.values())
    done = kmint("mint", "--resume", "1", "--json")
    assert done.code == 0 and f"goes on with {len(before)} drafts" in done.err
    after = rows(kmint_home)
    assert after.keys() >= set(range(6))
    assert {number: after[number][0] for number in range(6)} == {
        number: draft_seed(3, number) for number in range(6)
    }
    assert all(after[number][1] == said for number, (_, said) in before.items() if said)
    assert done.document["history_id"] == "1"
    refused(kmint("mint", "--resume", "1", "--drafts", "7"), 2, "--drafts is given too")
    refused(kmint("mint", "--resume", "1.2"), 2, "is a draft")
    refused(kmint("mint", "--resume", "9"), 2, "no session 9")
    assert kmint("judge", str(kernel_file), "--op", "softmax", "--keep", "mine").code == 0
    refused(kmint("mint", "--resume", "2"), 2, "was not made by `kmint mint`")
