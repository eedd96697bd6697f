"""The history keeps what it is given, survives kills, full disks and other writers, and refuses
what it does not know.
"""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kmint_tui.errors import EnvironmentUnfit, StorageError, UsageError
from kmint_tui.history import database
from kmint_tui.history.database import MIGRATIONS
from kmint_tui.history.records import NewDraft, NewSession, Reference, parse_id
from kmint_tui.history.store import History, is_gone, own_process
from kmint_tui.save.receipt import sha256

SESSION = NewSession(
    op="softmax",
    model="embedded",
    model_file="embedded.gguf",
    model_sha256="ab" * 32,
    system="You write kernels.",
    user="Op `softmax`",
    seed=7,
    wanted=3,
    settings={"temperature": 0.7},
    environment={"python": "3.11"},
)


def draft(
    number: int, source: str = "def run(x): ...\n", duplicate_of: int | None = None
) -> NewDraft:
    return NewDraft(
        number=number,
        source=source,
        seed=11 + number,
        temperature=0.7,
        tokens=100,
        seconds=1.5,
        finish="stop",
        duplicate_of=duplicate_of,
    )


def verdict(outcome: str) -> dict[str, object]:
    return {"schema": "kmint.verdict/1", "verdict": outcome, "reason": "because"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "history.db"


def test_everything_comes_back(path: Path) -> None:
    with History(path) as history:
        session = history.begin(SESSION)
        history.add_draft(session, draft(0))
        history.add_draft(session, draft(1, duplicate_of=0))
        history.add_draft(session, draft(2, "other"))
        history.set_verdict(session, 0, verdict("win"), ratio=1.2)
        history.set_verdict(session, 2, verdict("rejected"), ratio=None)
        history.finish(session, "done")
    with History(path) as history:
        stored = history.session(session)
        assert (stored.op, stored.system, stored.user, stored.settings, stored.state) == (
            "softmax",
            SESSION.system,
            SESSION.user,
            {"temperature": 0.7},
            "done",
        )
        first, second, third = history.drafts(session)
        assert (first.source, first.outcome, first.ratio, first.verdict) == (
            "def run(x): ...\n",
            "win",
            1.2,
            verdict("win"),
        )
        assert (second.duplicate_of, second.verdict, second.source_sha256) == (
            0,
            None,
            first.source_sha256,
        )
        assert third.id == f"{session}.2"
        (summary,) = history.summaries()
        assert (summary.drafted, summary.passed, summary.best, summary.ratio) == (3, 2, "win", 1.2)
        assert history.summaries(op="rmsnorm") == ()


def test_a_stopped_draft_is_kept_and_does_not_count_as_drafted(path: Path) -> None:
    with History(path) as history:
        session = history.begin(SESSION)
        history.add_draft(session, draft(0))
        history.add_draft(session, replace(draft(1), finish="cancelled"))
        (summary,) = history.summaries()
        assert (summary.drafted, len(history.drafts(session))) == (1, 2)


def test_the_best_outcome_is_not_the_first_in_the_alphabet(path: Path) -> None:
    with History(path) as history:
        session = history.begin(SESSION)
        for number, outcome in enumerate(("correct", "rejected", "loss", "tie")):
            history.add_draft(session, draft(number))
            history.set_verdict(session, number, verdict(outcome), ratio=None)
        assert history.summaries()[0].best == "tie"


def test_texts_are_stored_once(path: Path) -> None:
    with History(path) as history:
        for _ in range(3):
            session = history.begin(SESSION)
            history.add_draft(session, draft(0))
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM texts").fetchone() == (3,)
    connection.close()


def test_files_are_private(path: Path) -> None:
    History(path).close()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("number", [1, 99])
def test_what_is_not_there_is_refused(path: Path, number: int) -> None:
    with History(path) as history:
        session = history.begin(SESSION)
        with pytest.raises(UsageError):
            history.session(session + number)
        with pytest.raises(UsageError):
            history.draft(session, number)


def test_ids() -> None:
    assert parse_id("12") == Reference(12, None)
    assert parse_id("12.3") == Reference(12, 3)
    for wrong in ("", ".", "12.", ".3", "a", "1.2.3", "-1", "1e3", "²", "9" * 40):
        with pytest.raises(UsageError):
            parse_id(wrong)


def test_a_history_from_before_rounds_keeps_its_drafts(path: Path) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    for migration in MIGRATIONS[:2]:
        migration(connection)
    connection.execute("PRAGMA user_version = 2")
    digest = sha256("def run(x): ...")
    connection.execute("INSERT INTO texts VALUES (?, 'def run(x): ...')", (digest,))
    row = "(1, 't', 't', '', 'done', 'softmax', 'm', 'f', 'ab', :digest, :digest, 1, 1, '{}', '{}')"
    connection.execute(f"INSERT INTO sessions VALUES {row}", {"digest": digest})
    connection.execute(
        "INSERT INTO drafts VALUES (1, 0, ?, 3, 0.7, 10, 1.5, 'stop', NULL, NULL, NULL, NULL)",
        (digest,),
    )
    connection.commit()
    connection.close()
    with History(path) as history:
        (kept,) = history.drafts(1)
        assert (kept.source, kept.round, kept.parent, kept.author, kept.changes) == (
            "def run(x): ...",
            0,
            None,
            "smith",
            "",
        )
        history.add_draft(1, replace(draft(1), round=1, parent=0))
        history.add_draft(
            1, replace(draft(2), parent=1, author="tuner", changes="num_warps 4 -> 8")
        )
        repaired, tuned = history.drafts(1)[1:]
    assert (repaired.round, repaired.parent, repaired.author) == (1, 0, "smith")
    assert (tuned.round, tuned.parent, tuned.author, tuned.changes) == (
        0,
        1,
        "tuner",
        "num_warps 4 -> 8",
    )


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    History(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(EnvironmentUnfit, match="this kmint knows"):
        History(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"these are my notes, not a database\n" * 200)
    with pytest.raises(EnvironmentUnfit, match="not a database"):
        History(path)
    assert path.read_bytes().startswith(b"these are my notes")


def test_a_full_disk_is_a_storage_error_and_leaves_whole_rows(path: Path) -> None:
    with History(path) as history:
        session = history.begin(SESSION)
        history.add_draft(session, draft(0))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        log = path.with_name("history.db-wal")
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 20_000, before[1]))
        try:
            with pytest.raises(StorageError):
                for number in range(1, 100):
                    history.add_draft(session, draft(number, f"# {number}\n" * 1000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with History(path) as history:
        kept = history.drafts(session)
        assert kept[0].source == draft(0).source
        assert all(row.source == f"# {row.number}\n" * 1000 for row in kept[1:])


WRITER = """
import sys
from pathlib import Path
from kmint_tui.history.store import History
from tests.history.test_history import SESSION, draft, verdict
with History(Path(sys.argv[1])) as history:
    session = history.begin(SESSION)
    for number in range(int(sys.argv[2])):
        history.add_draft(session, draft(number, f"# {session}.{number}\\n" * 50))
        history.set_verdict(session, number, verdict("correct"), ratio=None)
        print(session, number, flush=True)
"""


def writer(path: Path, drafts: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), str(drafts)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ},
    )


def test_a_kill_loses_nothing_that_was_finished(path: Path) -> None:
    process = writer(path, 100_000)
    assert process.stdout is not None
    reported = [process.stdout.readline().split() for _ in range(25)]
    process.send_signal(signal.SIGKILL)
    reported += [
        line.split() for line in process.stdout.read().splitlines() if len(line.split()) == 2
    ]
    process.wait()
    process.stdout.close()
    with History(path) as history:
        rows = history.drafts(int(reported[0][0]))
        assert (history.summaries()[0].state, history.session(rows[0].session).state) == (
            "cut short",
            "cut short",
        )
    judged = [row.number for row in rows if row.verdict is not None]
    assert judged[: len(reported)] == [int(number) for _, number in reported]
    assert len(rows) - len(judged) in (0, 1)
    assert all(row.source == f"# {row.session}.{row.number}\n" * 50 for row in rows)


def test_many_writers_lose_nothing(path: Path) -> None:
    processes = [writer(path, 12) for _ in range(4)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert all(len(output.splitlines()) == 12 for output in outputs)
    with History(path) as history:
        assert [(row.drafted, row.passed) for row in history.summaries()] == [(12, 12)] * 4


def test_a_new_file_that_another_process_writes_is_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waits: list[float] = []

    def other_is_done(seconds: float) -> None:
        waits.append(seconds)
        other.execute("COMMIT")

    monkeypatch.setattr(database, "sleep", other_is_done)
    with History(path) as history:
        assert len(waits) == 1 and history.summaries() == ()
    other.close()


def test_a_new_file_that_stays_held_is_said_to_be(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    clock = iter((0.0, 1.0, database.BUSY_SECONDS - 1, database.BUSY_SECONDS))
    monkeypatch.setattr(database, "monotonic", lambda: next(clock))
    monkeypatch.setattr(database, "sleep", lambda seconds: None)
    with pytest.raises(database.Busy, match="another process has locked"):
        History(path)
    other.close()


def test_a_session_here_or_on_another_machine_may_still_run(path: Path) -> None:
    with History(path) as history:
        session = history.begin(SESSION)
        assert history.session(session).state == "running"
    assert not is_gone("elsewhere 1 1")
    assert is_gone(own_process() + "0")
