"""A contest of kernels whose verdicts change, and of one kernel alone, with a scripted referee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kmint_tui.core.book.contest import Contender, Contest
from kmint_tui.core.book.planning import Work, timed_places
from kmint_tui.history.records import Author
from referee.ops import get
from referee.problem import TaskName
from referee.variant_timing import VariantTime
from referee.verdict import Verdict
from tests.core.book_doubles import Referee
from tests.mint.doubles import kernel

SILU = Work(op=get("silu"), shapes=("8192x4096:bfloat16", "64x4096:bfloat16"))


def contender(word: str, source: str = "") -> Contender:
    made = source or kernel(word)
    return Contender(source=made, author="smith", smith="embedded", smith_sha256="")


def winners(referee: Referee, pieces: Work, *some: Contender) -> dict[str, str]:
    """The word of the best kernel by shape."""
    outcome = Contest(referee.opened(), pieces, timed_places(pieces), some).run()
    return {
        timed.place.shape: some[number].source.split("'")[1]
        for timed, (number, _) in outcome.best.items()
    }


def test_a_kernel_is_timed_where_it_won() -> None:
    """The first time stays when a rejection gives a kernel one more shape."""
    asked: list[tuple[str, tuple[str, ...]]] = []

    class Strict(Referee):
        def judge(self, source: str, op: str | TaskName, **options: Any) -> Verdict:
            assert isinstance(op, TaskName)
            asked.append((source.split("'")[1], op.timed))
            found = super().judge(source, op, **options)
            wrong = "'b'" in source
            return Verdict("silu", "rejected", "correct", "", None, "replay") if wrong else found

    referee = Strict({"a": {"8192x": 10.0, "64x": 9.0}, "b": {"8192x": 12.0, "64x": 5.0}})
    some = [*map(contender, "ab")]
    outcome = Contest(referee.opened(), SILU, timed_places(SILU), some).run()
    assert [number for number, _ in outcome.best.values()] == [0, 0]
    assert sorted(asked) == [
        ("a", (SILU.shapes[1],)),
        ("a", (SILU.shapes[0],)),
        ("b", (SILU.shapes[1],)),
    ]
    assert len((outcome.verdicts[0].timing or {})["shapes"]) == 2


@pytest.mark.parametrize(("second", "wide"), [("rejected", "c"), ("error", "a")])
def test_a_second_verdict_gives_no_place_up(second: Any, wide: str) -> None:
    """Another kernel gets the places of one that it rejects; an error takes none away."""
    asked: list[str] = []

    class Strict(Referee):
        def judge(self, source: str, op: str | TaskName, **options: Any) -> Verdict:
            word = source.split("'")[1]
            asked.append(word)
            if word == "b" or asked.count("a") == 2 and word == "a":
                outcome: Any = "rejected" if word == "b" else second
                return Verdict("silu", outcome, "correct", "", None, "replay")
            return super().judge(source, op, **options)

    times = {"a": {"8192x": 9.0, "64x": 7.0}, "b": {"8192x": 12.0, "64x": 5.0}}
    referee = Strict({**times, "c": {"8192x": 10.0, "64x": 8.0}})
    assert winners(referee, SILU, *map(contender, "abc")) == {"8192x4096": wide, "64x4096": "c"}


@pytest.mark.parametrize(
    ("author", "tuned"), [("smith", "tuner"), ("template", "template"), ("tuner", "tuner")]
)
def test_the_tuner_changes_a_kernel_that_has_no_rival(author: Author, tuned: Author) -> None:
    """A kernel of the template stays one."""
    source = """import triton
import triton.language as tl


@triton.jit
def kernel(a, b, N, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    tl.store(b + c, tl.load(a + c, mask=c < N), mask=c < N)


def run(x):
    y = torch.empty_like(x)
    kernel[(1,)](x, y, x.numel(), BLOCK=1024, num_warps=4)
    return y
"""

    class Racing(Referee):
        def time_variants(
            self, sources: Sequence[str], op: str | TaskName, *, seed: int | None = None
        ) -> tuple[VariantTime, ...]:
            us = [8.0 if "num_warps=8" in one else 10.0 for one in sources]
            return tuple(VariantTime(one, us[0] / one) for one in us)

    only = replace(contender("a", source), author=author, changes="flat")
    opened = Racing({"template": {"": 10.0}}).opened()
    outcome = Contest(opened, SILU, timed_places(SILU), [only]).run()
    won = {outcome.contenders[number] for number, _ in outcome.best.values()}
    assert {(one.author, one.changes) for one in won} == {(tuned, "flat, num_warps 4 -> 8")}
