"""Backups of the history: private, dated, few, and enough to bring a damaged history back."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kmint_tui import paths
from kmint_tui.history import backups
from kmint_tui.history.backups import MOST_KEPT, back_up, back_up_weekly
from kmint_tui.history.database import MIGRATIONS, Damaged, connect
from kmint_tui.history.store import History
from tests.cli.runner import kmint
from tests.history.test_history import SESSION, draft
from tests.history.test_transfer import documents, fill

pytestmark = pytest.mark.usefixtures("warm")


def old_history(path: Path, schema: int) -> None:
    """A history of an earlier kmint, with one text in it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
        for migration in MIGRATIONS[:schema]:
            migration(raw)
        raw.execute("INSERT INTO texts VALUES ('digest', 'a text')")
        raw.execute(f"PRAGMA user_version = {schema}")


@pytest.mark.parametrize("schema", range(1, len(MIGRATIONS)))
def test_a_migration_leaves_a_private_copy(tmp_path: Path, schema: int) -> None:
    path = tmp_path / "history.db"
    old_history(path, schema)
    connect(path).close()
    (copy,) = backups.backups(path)
    assert copy.name.endswith(f"-schema{schema}.db") and copy.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(copy)) as raw:
        assert raw.execute("SELECT * FROM texts").fetchall() == [("digest", "a text")]
        assert raw.execute("PRAGMA user_version").fetchone() == (schema,)
    connect(path).close()
    assert backups.backups(path) == (copy,)
    assert not [file for file in tmp_path.iterdir() if file.is_dir()]


def test_a_new_history_needs_no_copy(tmp_path: Path) -> None:
    connect(tmp_path / "history.db").close()
    assert not backups.backups(tmp_path / "history.db")


def test_a_copy_has_what_is_in_the_log_and_few_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, now = tmp_path / "history.db", datetime(2026, 1, 1, tzinfo=UTC)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return now

    monkeypatch.setattr(backups, "datetime", Clock)
    with History(path) as history:
        for _ in range(MOST_KEPT + 2):
            session = history.begin(SESSION)
            history.add_draft(session, draft(0))
            assert back_up(path) is not None
            now += timedelta(days=1)
    kept = backups.backups(path)
    assert [len(documents(copy)) for copy in kept] == [5, 4, 3][:MOST_KEPT]
    assert kept[0].name == "history-20260105T000000Z-schema5.db"


def test_a_session_makes_a_copy_once_a_week(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    fill(path, 1)
    assert not backups.backups(path)
    fill(path, 2)
    (first,) = backups.backups(path)
    assert len(documents(first)) == 1
    back_up_weekly(path)
    assert backups.backups(path) == (first,)
    old = first.with_name("history-20260101T000000Z-schema5.db")
    first.rename(old)
    back_up_weekly(path)
    assert len(backups.backups(path)) == 2 and backups.backups(path)[1] == old


def test_no_weekly_copy_of_a_damaged_history(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    fill(path, 40, size=2000)
    for copy in backups.backups(path):
        copy.unlink()
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    back_up_weekly(path)
    assert not backups.backups(path)


def test_the_named_commands_bring_a_history_back(tmp_path: Path) -> None:
    """The commands in the error's text, run by a shell, with a real damaged history."""
    path = paths.history_file()
    fill(path, 6, size=150)
    copy = back_up(path)
    fill(path, 1, size=151)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2 + 1])
    shown = kmint("history")
    assert shown.code == 3 and str(copy) in shown.err
    commands = " ".join(shown.err.split()).split("`")[1::2]
    assert [command.split()[0] for command in commands] == ["kmint", "mkdir", "cp", "kmint"]
    for command in commands:
        full = command.replace("kmint history", f"{sys.executable} -m kmint_tui history")
        done = subprocess.run(full, shell=True, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode in (0, 1), (command, done.stderr)
    assert [one["id"] for one in documents(path)][:6] == [1, 2, 3, 4, 5, 6]


def test_a_file_that_is_no_database_names_the_backup(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    fill(path, 2)
    (copy,) = backups.backups(path)
    for file in tmp_path.glob("history.db*"):
        file.unlink()
    path.write_bytes(b"notes " * 900)
    with pytest.raises(Exception) as caught:
        connect(path)
    assert str(copy) in str(getattr(caught.value, "fix", "")) and not isinstance(
        caught.value, Damaged
    )
