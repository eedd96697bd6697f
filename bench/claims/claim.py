"""One claim: its measurement, how a raw document becomes figures, and how figures become rows of a
table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Raw = Mapping[str, Any]
Figures = dict[str, Any]
Rows = dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim. `script` is the command that measures it, `about` the sentences above its table.

    `reduce` takes the script's document and gives a few figures; `rows` gives the table's rows,
    label and text.
    """

    name: str
    title: str
    script: str
    schema: str
    about: str
    reduce: Callable[[Raw], Figures]
    rows: Callable[[Figures], Rows]


def percent(share: float) -> str:
    """0.9004 as "90.0 %"."""
    return f"{100 * share:.1f} %"


def times(ratio: float) -> str:
    """1.163 as "1.16x"."""
    return f"{ratio:.2f}x"


def quantile(values: list[float], share: float) -> float:
    """The value below which this share of the values lies, interpolated between neighbours; there
    is at least one value."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
