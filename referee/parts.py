"""A sequence in a few parts, in order and of about the same effort. Limits: a part that holds one long item is as long as that."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeVar

T = TypeVar("T")


def parts(efforts: Sequence[float], items: Sequence[T], most: int) -> list[Sequence[T]]:
    """At most so many parts. `efforts` has one number above zero for each item."""
    found: dict[int, list[int]] = {}
    total = sum(efforts)
    for number, (effort, end) in enumerate(zip(efforts, accumulate(efforts), strict=True)):
        found.setdefault(int(most * (end - effort / 2) / total), []).append(number)
    return [items[numbers[0] : numbers[-1] + 1] for numbers in found.values()]
