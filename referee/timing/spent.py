"""Where the seconds of a process went, by part of its work."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Spent:
    """Seconds by part. The time of a part within another one counts for the inner one alone.

    For one thread.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._within: list[float] = []

    @contextmanager
    def during(self, part: str) -> Iterator[None]:
        """Counts the time of the block, also if it ends with an error."""
        began = time.perf_counter()
        self._within.append(0.0)
        try:
            yield
        finally:
            took = time.perf_counter() - began
            self.seconds[part] = self.seconds.get(part, 0.0) + took - self._within.pop()
            if self._within:
                self._within[-1] += took


def added(*some: Mapping[str, float]) -> dict[str, float]:
    """The sums of several profiles, part by part."""
    found: dict[str, float] = {}
    for spent in some:
        for part, seconds in tuple(spent.items()):
            found[part] = found.get(part, 0.0) + seconds
    return found
