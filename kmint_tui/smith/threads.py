"""Chooses the number of CPU threads of a step: measured at loading, watched during a run.

llama.cpp's threads spin at barriers. When another program takes one of their cores, all of them
wait for the descheduled one. Two threads can then be twenty times slower than one. So a count that
became slow is compared with the others on the next real steps, and the fastest stays. Tokens do not
depend on the count (`decoder.py`).
"""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

REFERENCE_WIDTH = 8
"""Number of rows of the reference step."""

_WINDOW = 8
"""Number of latest steps whose median is compared."""

_SLOW = 3.0
"""Ratio to the expected step time above which a trial starts."""

_TRIAL_STEPS = 3
"""Number of steps a thread count in a trial."""

_PAUSE = 64
"""Number of steps between two trials."""

_RETURN = 256
"""Number of steps after which the preferred count is tried again."""


@dataclass(frozen=True)
class Change:
    """The new count; `reason` is empty during a trial."""

    threads: int
    reason: str = ""


def counts(cores: int) -> tuple[int, ...]:
    """The thread counts to measure on `cores` physical cores: 1, 2, 4, … and all of them."""
    return tuple(
        sorted({*(1 << power for power in range(cores.bit_length()) if 1 << power <= cores), cores})
    )


class ThreadWatch:
    """Follows step times and changes the count. `reference` is seconds of a normal REFERENCE_WIDTH
    step.

    A count other than the `preferred` one is tried again from time to time.
    """

    def __init__(
        self, choices: tuple[int, ...], chosen: int, reference: float, preferred: int | None = None
    ) -> None:
        self.threads = chosen
        self._choices = choices
        self._preferred = chosen if preferred is None else preferred
        self._reference = reference
        self._best: dict[int, float] = {}
        self._recent: deque[float] = deque(maxlen=_WINDOW)
        self._width = 0
        self._wait = 0
        self._trial: list[int] = []
        self._tried: dict[int, list[float]] = {}
        self._since = 0

    def observe(self, width: int, seconds: float) -> Change | None:
        """Take in one step of `width` rows. Returns the change before the next step, if any."""
        if len(self._choices) < 2:
            return None
        if self._trial:
            return self._during_trial(width, seconds)
        if width != self._width:
            self._width = width
            self._recent.clear()
        self._recent.append(seconds)
        self._since += 1
        self._wait = max(0, self._wait - 1)
        if len(self._recent) < _WINDOW:
            return None
        usual = statistics.median(self._recent)
        expected = min(
            self._best.get(width, usual), self._reference * max(1.0, width / REFERENCE_WIDTH)
        )
        self._best[width] = min(self._best.get(width, usual), usual)
        slow = usual > _SLOW * expected
        if self._wait == 0 and (
            slow or (self.threads != self._preferred and self._since >= _RETURN)
        ):
            self._tried = {self.threads: [usual]}
            self._trial = [count for count in self._choices if count != self.threads]
            self.threads = self._trial[0]
            return Change(self.threads)
        return None

    def _during_trial(self, width: int, seconds: float) -> Change | None:
        """Collect a few steps a count; stop early at one that is already slower than the first."""
        times = self._tried.setdefault(self.threads, [])
        times.append(seconds)
        before = next(iter(self._tried.values()))[0]
        if len(times) < _TRIAL_STEPS and seconds < 2 * before and width == self._width:
            return None
        self._trial.pop(0)
        if self._trial and width == self._width:
            self.threads = self._trial[0]
            return Change(self.threads)
        self._trial = []
        ranked = {count: statistics.median(times) for count, times in self._tried.items()}
        first = next(iter(ranked))
        best = min(ranked, key=lambda count: ranked[count])
        self.threads = best if ranked[best] < 0.8 * ranked[first] else first
        self._recent.clear()
        self._wait, self._since = _PAUSE, 0
        if self.threads == first:
            return Change(self.threads)
        shown = ", ".join(f"{count}: {1000 * ranked[count]:.1f} ms" for count in sorted(ranked))
        return Change(self.threads, f"by number of threads, steps now take {shown}")
