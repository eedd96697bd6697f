"""The order of the table, and the same table for the same verdicts."""

from __future__ import annotations

import random

from kmint_tui.history.verdicts import ratio
from kmint_tui.minting.drafts import MintDraft
from kmint_tui.minting.result import best, rank
from tests.mint.doubles import verdict


def draft(index: int, source: str = "x = 1\n", duplicate_of: int | None = None) -> MintDraft:
    return MintDraft(index, source, 10, 1.0, "stop", 0, 0.7, duplicate_of=duplicate_of)


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


def test_ranking_is_by_spills_then_traffic_then_registers() -> None:
    """Correct kernels are ranked by spills then traffic then registers and not by length."""
    drafts = [
        draft(0, "x = 1\n"),
        *(draft(index, "x = 1\n" * (9 - index)) for index in range(1, 5)),
    ]
    figures = [(0, 2.0, 16), (8, 1.0, 16), (0, 1.0, 40), (0, 1.0, 32), None]
    names = ("spills", "traffic", "registers")
    verdicts = {
        index: verdict("correct", compiled=dict(zip(names, one, strict=True)) if one else None)
        for index, one in enumerate(figures)
    }
    assert rank(drafts, verdicts) == (3, 2, 0, 1, 4)


def test_there_is_no_best_among_rejected_ones() -> None:
    assert best((0, 1), {0: verdict("rejected"), 1: verdict("error")}) is None


def test_a_ratio_is_only_a_number() -> None:
    assert [
        ratio(timing)
        for timing in (
            None,
            {},
            {"ratio": None},
            {"ratio": {"ratio": "fast"}},
            {"ratio": {"ratio": 1.5}},
        )
    ] == [None] * 4 + [1.5]
