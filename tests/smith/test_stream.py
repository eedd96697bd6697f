"""Text from token bytes: the result never depends on the cuts of bytes or text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kmint_tui.smith.stream import DraftText, StopMatcher, Utf8Stream

Cut = TypeVar("Cut", str, bytes)
CUTS = st.lists(st.integers(min_value=1, max_value=7), max_size=30)
TEXTS = st.text(alphabet="ab`\nxé漢", max_size=40)
STOPS = st.lists(st.text(alphabet="ab`\nx", min_size=1, max_size=5), min_size=1, max_size=4)


def pieces(whole: Cut, sizes: Sequence[int]) -> list[Cut]:
    out: list[Cut] = []
    for size in sizes:
        out.append(whole[:size])
        whole = whole[size:]
    out.append(whole)
    return out


def run(matcher: StopMatcher, parts: Sequence[str]) -> str:
    return "".join(matcher.feed(part) for part in parts) + (
        "" if matcher.stopped else matcher.finish()
    )


@given(TEXTS, CUTS)
def test_utf8_survives_any_cut(text: str, sizes: list[int]) -> None:
    stream = Utf8Stream()
    assert (
        "".join(stream.feed(part) for part in pieces(text.encode(), sizes)) + stream.finish()
        == text
    )


@given(st.binary(max_size=30), CUTS)
def test_invalid_bytes_are_replaced_however_they_are_cut(raw: bytes, sizes: list[int]) -> None:
    stream = Utf8Stream()
    assert "".join(
        stream.feed(part) for part in pieces(raw, sizes)
    ) + stream.finish() == raw.decode("utf-8", "replace")


@given(TEXTS, STOPS, CUTS)
def test_stopping_does_not_depend_on_the_cuts(
    text: str, stops: list[str], sizes: list[int]
) -> None:
    whole, cut = StopMatcher(stops), StopMatcher(stops)
    assert run(cut, pieces(text, sizes)) == run(whole, [text])
    assert cut.stopped == whole.stopped


@given(TEXTS, STOPS, CUTS)
def test_stopping_agrees_with_a_plain_search(text: str, stops: list[str], sizes: list[int]) -> None:
    matcher = StopMatcher(stops)
    passed = run(matcher, pieces(text, sizes))
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    assert matcher.stopped == bool(ends)
    assert passed == (text[: min(ends)[1]] if ends else text)


@given(TEXTS, STOPS)
def test_what_was_let_through_never_holds_a_stop(text: str, stops: list[str]) -> None:
    passed = run(StopMatcher(stops), list(text))
    assert not any(stop in passed for stop in stops)


@given(TEXTS, CUTS)
def test_stops_count_only_after_the_opener(text: str, sizes: list[int]) -> None:
    matcher = StopMatcher(["\n`"], opener="`a")
    passed = run(matcher, pieces(text, sizes))
    head, opener, tail = text.partition("`a")
    assert passed == head + opener + tail.partition("\n`")[0]


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopMatcher([""])


def test_nothing_passes_after_a_stop() -> None:
    matcher = StopMatcher(["END"])
    assert [matcher.feed(part) for part in ("aE", "NDb", "c")] == ["a", "", ""]
    assert matcher.finish() == ""


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_a_fenced_answer_stops_at_its_closing_fence(size: int) -> None:
    raw = "Sure:\n```python\ny = 'é'\n```\nThat was it.\n```".encode()
    draft = DraftText(inside=False)
    shown = "".join(draft.feed(raw[at : at + size]) for at in range(0, len(raw), size))
    shown += draft.finish()
    assert draft.stopped
    assert shown == draft.text == "Sure:\n```python\ny = 'é'"


def test_a_prefilled_answer_stops_at_the_first_fence() -> None:
    inside, bare = DraftText(inside=True), DraftText(inside=False)
    for draft in (inside, bare):
        draft.feed(b"x = 1\n``")
        draft.feed(b"`\nmore")
        draft.finish()
    assert (inside.text, inside.stopped) == ("x = 1", True)
    assert (bare.text, bare.stopped) == ("x = 1\n```\nmore", False)


def test_an_answer_that_ends_inside_a_character_loses_nothing() -> None:
    draft = DraftText(inside=True)
    draft.feed("é".encode()[:1] + b"")
    assert draft.finish() == "�"
    draft = DraftText(inside=True)
    assert draft.feed(b"x\n``") == "x"
    assert draft.finish() == "\n``"
    assert draft.text == "x\n``"
