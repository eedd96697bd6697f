"""Rows read off raw pages are the rows SQLite reads, and no bytes whatever make the reader fail."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kmint_tui.history.pages import rows


@pytest.mark.parametrize("page", [512, 4096, 65536])
def test_the_same_rows_as_sqlite_reads(tmp_path: Path, page: int) -> None:
    file, chance = tmp_path / "some.db", random.Random(page)
    values = (None, 0, 1, -1, 127, -129, 2**23, 2**40, -(2**62), 1.5, "", "ä€😀", "long " * 5000, b"\x00\xff" * 700)
    stored: list[tuple[Any, ...]] = [(number, *chance.sample(values, 4)) for number in range(300)]
    with closing(sqlite3.connect(file)) as raw:
        raw.execute(f"PRAGMA page_size = {page}")
        raw.execute("CREATE TABLE keyed (id INTEGER PRIMARY KEY, a, b, c, d)")
        raw.execute("CREATE TABLE plain (id, a, b, c, d, PRIMARY KEY (id)) WITHOUT ROWID")
        raw.executemany("INSERT INTO keyed VALUES (?, ?, ?, ?, ?)", stored)
        raw.executemany("INSERT INTO plain VALUES (?, ?, ?, ?, ?)", stored)
        raw.commit()
    found = list(rows(file.read_bytes()))
    assert sorted(((row.key, *row.values[1:]) for row in found if row.key is not None), key=lambda row: row[0] or 0) == stored
    assert sorted((row.values for row in found if row.key is None), key=lambda row: row[0]) == stored  # type: ignore[arg-type,return-value]


def test_free_pages_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "some.db"
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("CREATE TABLE gone (id INTEGER PRIMARY KEY, a)")
        raw.executemany("INSERT INTO gone VALUES (?, ?)", [(number, "x" * 900) for number in range(500)])
        raw.commit()
        raw.execute("DROP TABLE gone")
        raw.commit()
    assert list(rows(file.read_bytes())) == []


def test_no_bytes_make_it_fail(tmp_path: Path) -> None:
    file, chance = tmp_path / "some.db", random.Random(3)
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("CREATE TABLE plain (id INTEGER PRIMARY KEY, a)")
        raw.executemany("INSERT INTO plain VALUES (?, ?)", [(number, "x" * chance.randrange(9000)) for number in range(60)])
        raw.commit()
    content = file.read_bytes()
    for _ in range(300):
        changed = bytearray(content)
        for _ in range(chance.choice((1, 20, 400))):
            changed[chance.randrange(16, len(changed))] = chance.randrange(256)
        for _ in rows(bytes(changed[: chance.choice((len(changed), 700, len(changed) - 100))])):
            pass
    assert list(rows(b"")) == list(rows(b"notes" * 200)) == []
