"""The document of a book: what is written is read again, and what is damaged is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kmint_tui.book.document import BadBook, from_json, read_book, text_of
from tests.book.examples import RIGHT, WRONG, book, entry

BOOK = book(entry(), entry(WRONG, shape="64x4096", low=None, high=None), sources=(RIGHT, WRONG))


def test_a_book_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "book.json").write_text(text_of(BOOK), encoding="utf-8")
    found = read_book(tmp_path / "book.json")
    assert sorted(found.entries, key=lambda one: one.place) == sorted(
        BOOK.entries, key=lambda one: one.place
    )
    assert found.sources == BOOK.sources and text_of(found) == text_of(BOOK)


def test_a_source_is_stored_once() -> None:
    shared = book(entry(), entry(shape="64x4096"), sources=(RIGHT, WRONG))
    document = json.loads(text_of(shared))
    assert list(document["sources"].values()) == [RIGHT] and len(document["entries"]) == 2
    assert document["schema"] == "kmint.book/1"


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def make(document: dict[str, Any]) -> None:
        *parts, last = path.split(".")
        place: Any = document
        for part in parts:
            place = place[int(part)] if part.isdigit() else place[part]
        place[last] = value

    return make


def drop_sources(document: dict[str, Any]) -> None:
    document["sources"].clear()


def repeat(document: dict[str, Any]) -> None:
    document["entries"].append(document["entries"][0])


def another_text(document: dict[str, Any]) -> None:
    name = next(iter(document["sources"]))
    document["sources"][name] += "# more\n"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (change("schema", "kmint.book/2"), "not of the schema kmint.book/1"),
        (change("device", 7), "the book.device must be text"),
        (change("device", "\x1b[2J"), "steers the terminal"),
        (change("entries.0.op", "../silu"), "'../silu' is no operation"),
        (change("entries.0.shape", "8192 4096"), "is no shape"),
        (change("entries.0.figures.ratio", "fast"), "figures.ratio must be a number"),
        (change("entries.0.figures.us", 0), "is not between 0 and"),
        (change("entries.0.figures.ratio", 1e308), "is not between 0 and"),
        (change("entries.0.figures.low", -1.0), "is not between 0 and"),
        (change("entries.0.smith", "   "), "begins or ends with a space"),
        (change("sources.a\nfix: run this", "text"), r"a\\nfix"),
        (change("entries.0.author", "me"), "author must be one of"),
        (change("entries.0.smith", "a\nb"), "steers the terminal"),
        (change("entries.1.versions", {"torch": "x" * 500}), "is too long"),
        (drop_sources, "the kernel of silu .* is missing"),
        (another_text, "is not the text of that digest"),
        (repeat, "two entries for silu"),
    ],
)
def test_a_damaged_book_is_refused_in_one_line(
    damage: Callable[[dict[str, Any]], None], words: str
) -> None:
    document = json.loads(text_of(BOOK))
    from_json(document)
    damage(document)
    with pytest.raises(BadBook, match=words) as refused:
        from_json(document)
    assert "\n" not in str(refused.value)
