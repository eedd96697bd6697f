"""How much of a sweep a run covers: a fixed sample, or every case where KMINT_TEST_ALL is 1.

A sweep repeats one test over many like cases, such as all operations of the catalogue. The sample
is the same in every run. Set the variable before a release.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from referee.ops import Op

Case = TypeVar("Case")

EVERY_CASE = os.environ.get("KMINT_TEST_ALL") == "1"
STEP = 5
"""One of this many cases is in the sample."""
SWEEP_STEP = 6
"""One of this many cases of a test marked `sweep` runs."""


def sample(cases: Iterable[Case], *, start: int = 0, step: int = STEP) -> tuple[Case, ...]:
    """Every `step`-th case from number `start` on, or every case."""
    return tuple(cases)[None if EVERY_CASE else start :: 1 if EVERY_CASE else step]


def operations(*, start: int, among: Sequence[Op] | None = None) -> tuple[Op, ...]:
    """Every fifth operation from number `start` on, and one of each kind; or every operation."""
    # Not at the top: tests/conftest.py imports this module before it sets torch's variables.
    from referee.ops import catalogue

    every = tuple(catalogue()) if among is None else tuple(among)
    chosen = set(sample(every, start=start))
    for kind in {op.kind for op in every} - {op.kind for op in chosen}:
        chosen.add(next(op for op in every if op.kind == kind))
    return tuple(op for op in every if op in chosen)


def repeats(few: int, many: int) -> range:
    """Numbers of the repetitions, such as seeds: few of them, or many with every case."""
    return range(many if EVERY_CASE else few)
