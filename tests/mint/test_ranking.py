"""The order of the table, and the same table for the same verdicts."""

from __future__ import annotations

import random

from kmint_tui.minting.drafts import Draft
from kmint_tui.minting.ranking import best, rank, ratio
from tests.mint.doubles import verdict


def draft(index: int, source: str = "x = 1\n", duplicate_of: int | None = None) -> Draft:
    return Draft(index, source, 10, 1.0, "stop", 0, 0.7, duplicate_of=duplicate_of)


def test_the_order() -> None:
    drafts = [draft(index) for index in range(12)]
    drafts[9] = draft(9, duplicate_of=1)
    drafts[10] = draft(10, duplicate_of=2)
    verdicts = {
        0: verdict("rejected", "screen"),
        1: verdict("rejected", "correct"),
        2: verdict("win", ratio=1.2),
        3: verdict("loss", ratio=0.9),
        4: verdict("tie", ratio=1.0),
        5: verdict("win", ratio=1.5),
        6: verdict("correct"),
        7: verdict("unsure", ratio=1.3),
        8: verdict("error"),
    }
    expected = (5, 2, 4, 7, 3, 6, 1, 0, 8, 10, 9, 11)
    for seed in range(20):
        shuffled = random.Random(seed).sample(drafts, len(drafts))
        assert rank(shuffled, verdicts) == expected
    assert best(expected, verdicts) == 5


def test_of_correct_kernels_the_simpler_is_first_and_comments_do_not_count() -> None:
    drafts = [draft(0, "x = 1\ny = 2\n"), draft(1, "x = 1\n# a long comment\n"), draft(2, "x = 1\n")]
    assert rank(drafts, {index: verdict("correct") for index in range(3)}) == (1, 2, 0)


def test_there_is_no_best_among_rejected_ones() -> None:
    assert best((0, 1), {0: verdict("rejected"), 1: verdict("error")}) is None


def test_a_ratio_is_only_a_number() -> None:
    assert [ratio(timing) for timing in (None, {}, {"ratio": None}, {"ratio": {"ratio": "fast"}}, {"ratio": {"ratio": 1.5}})] == [
        None
    ] * 4 + [1.5]
