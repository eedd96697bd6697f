"""The history leaves as JSON lines and comes back the same; damage is reported and costs only what
it hit.
"""

from __future__ import annotations

import io
import json
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kmint_tui import paths
from kmint_tui.errors import EnvironmentUnfit, UsageError
from kmint_tui.history.backups import back_up
from kmint_tui.history.records import Reference
from kmint_tui.history.store import History
from kmint_tui.history.transfer import Damage, export, remove, take_in
from tests.cli.runner import kmint
from tests.history.test_history import SESSION, draft, verdict

pytestmark = pytest.mark.usefixtures("warm")


def fill(path: Path, sessions: int, *, size: int = 10) -> None:
    with History(path) as history:
        for number in range(sessions):
            session = history.begin(replace(SESSION, seed=number))
            history.add_draft(session, draft(0, f"# {number}\n" * size))
            history.add_draft(
                session,
                replace(draft(1, f"# {number}\n" * size, duplicate_of=0), round=1, parent=0),
            )
            history.set_verdict(session, 0, verdict("correct"), ratio=None)
            history.finish(session, "done")


def documents(path: Path) -> list[dict[str, Any]]:
    found = list(export(path))
    assert not any(isinstance(one, Damage) for one in found), found
    return [one for one in found if isinstance(one, dict)]


def stream(*lines: object) -> io.BytesIO:
    """A file of lines: documents, or text as it is."""
    return io.BytesIO(
        "".join(
            f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines
        ).encode()
    )


def test_out_and_in_again_is_the_same(tmp_path: Path) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    fill(old, 3)
    assert take_in(new, stream(*documents(old))).drafts == 6
    assert documents(new) == documents(old)
    again = take_in(new, stream(*documents(old)))
    assert (again.sessions, again.known) == (0, 3)


def test_sessions_exported_before_drafts_had_rounds_come_in(tmp_path: Path) -> None:
    fill(tmp_path / "old.db", 1)
    (document,) = documents(tmp_path / "old.db")
    for made in document["drafts"]:
        for name in ("round", "parent", "author", "changes"):
            del made[name]
    assert take_in(tmp_path / "new.db", stream(document)).drafts == 2
    (taken,) = documents(tmp_path / "new.db")
    assert [(made["round"], made["parent"], made["author"]) for made in taken["drafts"]] == [
        (0, None, "smith")
    ] * 2


def test_what_is_removed_takes_its_texts_along(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    fill(path, 2)
    with pytest.raises(UsageError, match="is also the kernel of 1.1"):
        remove(path, Reference(1, 0))
    with pytest.raises(UsageError, match="no session 99; nothing was removed"):
        remove(path, Reference(1, 1), Reference(99, None))
    remove(path, Reference(1, 0), Reference(1, 1))
    remove(path, Reference(1, None))
    with pytest.raises(UsageError, match="no session 1"):
        remove(path, Reference(1, None))
    assert [document["id"] for document in documents(path)] == [2]
    with sqlite3.connect(path) as raw:
        assert raw.execute("SELECT count(*) FROM texts").fetchone()[0] == 3
    raw.close()


def pages(path: Path) -> tuple[bytes, int]:
    """The bytes of a history, all of it in its one file, and the size of a page."""
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page = raw.execute("PRAGMA page_size").fetchone()[0]
    raw.close()
    return path.read_bytes(), page


def test_a_damaged_page_costs_only_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    fill(path, 40, size=2000)
    content, page = pages(path)
    # A page deep in the file holds the long texts.
    middle = len(content) // page // 2 * page
    path.write_bytes(content[:middle] + b"\xff" * page + content[middle + page :])
    found = list(export(path))
    whole_file, *damage = [one for one in found if isinstance(one, Damage)]
    assert whole_file.session is None and "kmint history import" in whole_file.reason
    assert damage and all(one.draft is not None for one in damage)
    assert len(found) - len(damage) == 41  # forty sessions, and the damage to the file
    kept = [one for one in found if isinstance(one, dict)]
    assert take_in(tmp_path / "new.db", stream(*kept)).drafts == 80 - len(damage)


def test_no_damaged_page_goes_unnoticed(tmp_path: Path) -> None:
    """And the commands that kmint names bring back the backup with the later sessions."""
    path, place = tmp_path / "history.db", tmp_path
    fill(path, 16, size=150)
    backup = back_up(path)
    assert backup is not None
    fill(path, 4, size=151)
    (content, page), stored = pages(path), documents(path)
    saved = backup.read_bytes()
    for start in range(0, len(content), page):
        # SQLite itself does not notice zeros in the middle of a long text.
        path.write_bytes(content[:start] + bytes(page) + content[start + page :])
        kept: list[dict[str, Any]] = []
        try:
            found = list(export(path))
        except EnvironmentUnfit as refused:
            assert refused.fix and str(backup) in refused.fix
        else:
            damage = [one for one in found if isinstance(one, Damage)]
            assert found == stored or [one.session for one in damage].count(None) == 1, start
            assert found == stored or str(backup) in damage[0].reason
            kept = [one for one in found if isinstance(one, dict)]
        for file in place.glob("history.db*"):
            file.unlink()
        path.write_bytes(saved)
        take_in(path, stream(*kept))
        assert [one["id"] for one in documents(path)][:16] == [*range(1, 17)], start
        for file in place.glob("history.db*"):
            file.unlink()


def test_a_scan_from_both_ends_passes_over_a_page(tmp_path: Path) -> None:
    """A page of the table of drafts holds the rows of several sessions; the others are read."""
    path = tmp_path / "history.db"
    fill(path, 300)
    content, page = pages(path)
    with sqlite3.connect(path) as raw:
        leaves = raw.execute(
            "SELECT pageno FROM dbstat WHERE name = 'sessions' AND pagetype = 'leaf'"
        ).fetchall()
    raw.close()
    start = (leaves[len(leaves) // 2][0] - 1) * page
    path.write_bytes(content[:start] + bytes(page) + content[start + page :])
    ids = [one["id"] for one in export(path) if isinstance(one, dict)]
    assert len(leaves) > 5 and 1 in ids and 300 in ids and 250 < len(ids) < 300


def test_a_file_that_was_cut_short_is_read(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    fill(path, 40, size=2000)
    content, page = pages(path)
    path.write_bytes(content[: len(content) // 2 // page * page - page // 2])
    whole_file, *found = list(export(path))
    assert isinstance(whole_file, Damage) and whole_file.session is None
    assert any(isinstance(one, dict) for one in found)


WRITERS = """
import sys
import threading
from pathlib import Path
from kmint_tui.history import database
from kmint_tui.history.store import History
from tests.history.test_history import SESSION, draft, verdict

# SQLite has no queue of writers: on a slow disk, one of a hundred may wait longer than
# BUSY_SECONDS.
database.BUSY_SECONDS = 900.0

def write():
    ready.wait()
    with History(Path(sys.argv[1])) as history:
        session = history.begin(SESSION)
        for number in range(3):
            history.add_draft(session, draft(number, f"# {session}.{number}"))
            history.set_verdict(session, number, verdict("correct"), ratio=None)
        history.finish(session, "done")

ready = threading.Barrier(10)
# Daemon threads: if one cannot be started, the process ends with that error.
threads = [threading.Thread(target=write, daemon=True) for _ in range(10)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_a_hundred_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path, root = tmp_path / "history.db", Path(__file__).parents[2]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITERS, str(path)], cwd=root, stderr=subprocess.PIPE
        )
        for _ in range(10)
    ]
    failures = [process.communicate()[1].decode() for process in processes]
    assert failures == [""] * 10
    found = documents(path)
    assert len(found) == 100
    for document in found:
        sources = [draft["source"] for draft in document["drafts"]]
        assert (document["state"], sources) == (
            "done",
            [f"# {document['id']}.{number}" for number in range(3)],
        )
        assert all(draft["outcome"] == "correct" for draft in document["drafts"])


def test_the_commands(kmint_home: Path, tmp_path: Path) -> None:
    fill(paths.history_file(), 2)
    out = kmint("history", "export")
    assert (out.code, len(out.out.splitlines())) == (0, 2)
    (tmp_path / "all.jsonl").write_text(out.out, encoding="utf-8")
    shown = kmint("history", "diff", "1.0", "2.0")
    assert shown.code == 1 and "-# 0" in shown.out and "+# 1" in shown.out
    assert kmint("history", "diff", "1.0", "1.1").code == 0
    assert (
        kmint("history", "diff", "1.0", "2.0", "--json").document["lines"] == shown.out.splitlines()
    )
    assert kmint("history", "rm", "1", "--yes").code == 0
    back = kmint("history", "import", str(tmp_path / "all.jsonl"))
    assert back.code == 0 and "1 sessions" in back.err and "1 were here" in back.err
    assert kmint("history", "import", str(tmp_path / "nowhere")).code == 2
    assert kmint("history", "rm", "77", "--yes").code == 2
