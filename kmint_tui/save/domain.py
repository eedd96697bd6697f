"""The shapes that a judged launcher takes where it refuses others of its operation.

The launcher's own checks stay in the saved file and raise its own words. This module describes the
domain to readers, and keeps the generated test within it.
Limits: step and columns come from the judged cases, so they may be narrower than the checks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kmint_tui.save.host_code import NotSaveable
from referee.verdict import Verdict

_CASE = re.compile(r"(\w+)-\d+x(\d+)-")
_MOST_STEP = 1 << 10


@dataclass(frozen=True)
class Domain:
    """Columns that the launcher takes with every dtype: multiples of `step`, `most` at most."""

    words: str
    step: int
    most: int | None

    def columns(self, wanted: int) -> int:
        """The wanted number of columns, or the nearest smaller one that the launcher takes."""
        least = wanted if self.most is None else min(wanted, self.most)
        return max(self.step, least // self.step * self.step)


def domain(verdict: Verdict) -> Domain | None:
    """The domain of a verdict on a saved form; None when the launcher takes every judged case.

    Raises NotSaveable for a verdict that holds only in some circumstances: no check of the saved
    file could keep a caller out of the others. Raises it for a kernel that works in place too.
    """
    holds = verdict.holds
    if holds is None:
        return None
    if holds.circumstances:
        raise NotSaveable(
            f"its verdict does not hold for {', '.join(holds.circumstances)}",
            fix="give every allocation its dtype, and let launches depend on shapes alone",
        )
    if holds.changed:
        raise NotSaveable(
            f"it changes {' and '.join(holds.changed)} in place, and a saved function returns new tensors",
            fix="let `run` allocate its outputs",
        )
    required = [one for one in verdict.cells if one.role != "capability"]
    passed = _columns([one.name for one in required if one.status == "pass"])
    refused = _columns([one.case for one in holds.refused])
    known = [number for numbers in passed.values() for number in numbers]
    step = next(
        (
            2**power
            for power in range(_MOST_STEP.bit_length() - 1, 0, -1)
            if known and all(number % 2**power == 0 for number in known)
        ),
        1,
    )
    most = []
    for dtype, numbers in passed.items():
        first = min((one for one in refused.get(dtype, ()) if one % step == 0), default=None)
        most.append(max((one for one in numbers if first is None or one < first), default=step))
    words = holds.words.partition("; the launcher refuses")[0]
    return Domain(f"{words}; its launcher raises for other shapes", step, min(most, default=None))


def _columns(names: Sequence[str]) -> dict[str, set[int]]:
    """Numbers of columns by dtype, from the names of test cases."""
    found: dict[str, set[int]] = {}
    for name in names:
        if case := _CASE.match(name):
            found.setdefault(case[1], set()).add(int(case[2]))
    return found
