"""The books of a machine: the order of their origins, additions, and damaged files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kmint_tui.book import store
from kmint_tui.book.document import text_of
from kmint_tui.book.records import Book
from kmint_tui.errors import EnvironmentUnfit, UsageError
from tests.book.examples import DEVICE, RIGHT, WRONG, book, entry


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the books of the package."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    monkeypatch.setattr(store, "SHIPPED", folder)
    return folder


def put(whole: Book) -> None:
    store.put(whole.device, whole.entries, dict(whole.sources))


def test_an_own_kernel_goes_before_imported_and_shipped(shipped: Path) -> None:
    places = ("1x1", "2x2", "3x3")
    (shipped / "nvidia-h200.json").write_text(
        text_of(book(*(entry(shape=one, ratio=3.0) for one in places)))
    )
    store.take(book(*(entry(shape=one, ratio=2.0) for one in places[:2])))
    put(book(entry(shape="1x1", ratio=1.0)))
    found, origins = store.load(DEVICE)
    assert [one.figures.ratio for one in found.entries] == [1.0, 2.0, 3.0]
    assert list(origins.values()) == ["own", "imported", "shipped"]


def test_additions_replace_their_place_alone(shipped: Path) -> None:
    put(book(entry(shape="1x1"), entry(shape="2x2")))
    put(book(entry(WRONG, shape="2x2"), sources=(WRONG, RIGHT)))
    found = store.read("own", DEVICE)
    texts = {one.shape: found.source(one) for one in found.entries}
    assert texts == {"1x1": RIGHT, "2x2": WRONG}


def test_a_device_is_named_by_a_part_of_its_name(shipped: Path) -> None:
    with pytest.raises(UsageError, match="no book yet"):
        store.named(None)
    put(book(entry()))
    assert (store.named(None), store.named("h200"), store.named(None, "A100")) == (
        *(DEVICE, DEVICE),
        "A100",
    )
    put(book(entry(), device="NVIDIA H100"))
    with pytest.raises(UsageError, match="NVIDIA H100, NVIDIA H200"):
        store.named(None)
    with pytest.raises(UsageError, match="no single book is of 'H'"):
        store.named("H")
    with pytest.raises(UsageError, match="no single book is of 'mi300'"):
        store.named("mi300")


def test_a_damaged_file_is_named_and_stays(shipped: Path) -> None:
    put(book(entry()))
    file = store.folder("own") / "nvidia-h200.json"
    whole = file.read_text()
    file.write_text(whole[:-40])
    for use in (lambda: store.load(DEVICE), lambda: put(book(entry(shape="5x5")))):
        with pytest.raises(EnvironmentUnfit, match="nvidia-h200.json: it is not JSON"):
            use()
    assert file.read_text() == whole[:-40]


def test_devices_of_like_names_have_files_of_their_own(shipped: Path) -> None:
    names = (DEVICE, f"{DEVICE}.", "NVIDIA-H200", "显卡甲", "显卡乙")
    for name in names:
        put(book(entry(), device=name))
    assert store.devices() == tuple(sorted(names))


def test_no_book_is_kept_that_could_not_be_read(
    shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.take(book(entry(shape="1x1")))
    monkeypatch.setattr("kmint_tui.documents.MAX_VALUES", 60)
    with pytest.raises(UsageError, match="too large to read") as refused:
        store.take(book(entry(shape="2x2"), entry(shape="3x3")))
    assert refused.value.fix is not None
    assert [one.shape for one in store.read("imported", DEVICE).entries] == ["1x1"]
