"""A `kmint.verdict/1` document: its types, as far as kmint's own readers need them, and its speed.

A stage or a status may be any text, because a newer referee has more of them. Null stands for a
number that was not finite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from kmint_tui.typed import Mistyped, typed

SCHEMA = "kmint.verdict/1"
"""The same text as in `referee.verdict`. Shell completion must not wait for an import of the
referee."""
LONGEST_REASON = 20_000
"""Characters of a reason, which is one line of a table."""


class CheckDocument(TypedDict):
    """One guard's report."""

    name: str
    status: str
    detail: NotRequired[str]


class CellDocument(TypedDict):
    """The outcome at one cell."""

    name: str
    status: str
    role: NotRequired[str]
    error: NotRequired[float | None]
    budget: NotRequired[float | None]
    detail: NotRequired[str]


class SummaryDocument(TypedDict):
    """Times in microseconds."""

    median: float
    p10: NotRequired[float]
    p90: NotRequired[float]
    deciles: NotRequired[list[float]]


class IntervalDocument(TypedDict):
    """How many times faster the kernel is, with a confidence interval."""

    ratio: float | None
    low: NotRequired[float | None]
    high: NotRequired[float | None]


class ShapeDocument(TypedDict):
    """The times at one cell."""

    device: NotRequired[dict[str, SummaryDocument]]
    cell: NotRequired[str]
    bar: NotRequired[str | None]
    ratio: NotRequired[IntervalDocument | None]
    rounds: NotRequired[int]
    dropped_rounds: NotRequired[int]
    dropped: NotRequired[dict[str, int]]
    missing: NotRequired[dict[str, str]]
    neighbours: NotRequired[list[str]]
    notes: NotRequired[list[str]]
    environment: NotRequired[dict[str, Any]]
    decision: NotRequired[str]


class TimingDocument(ShapeDocument):
    """The times at one cell; of several shapes those at the first, and a list of all."""

    shapes: NotRequired[list[ShapeDocument]]
    geometric_mean: NotRequired[float | None]


class HostCodeDocument(TypedDict):
    """Host code outside the allow-list, which the verdict does not cover."""

    line: int | None
    what: str
    reason: NotRequired[str]


class VerdictDocument(TypedDict):
    """A whole verdict."""

    verdict: str
    reason: NotRequired[str]
    op: NotRequired[str]
    stage: NotRequired[str]
    mode: NotRequired[str]
    guard: NotRequired[str | None]
    checks: NotRequired[list[CheckDocument]]
    cells: NotRequired[list[CellDocument]]
    timing: NotRequired[TimingDocument | None]
    environment: NotRequired[dict[str, Any]]
    host_code: NotRequired[list[HostCodeDocument]]


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Speed of a kernel: microseconds a call, and the ratio to the fastest baseline with a 95 %
    interval.

    With too little data the interval has no bounds.
    """

    cell: str
    microseconds: float
    bar: str
    ratio: float
    low: float | None
    high: float | None


def speed(verdict: Mapping[str, Any]) -> Speed | None:
    """The speed in a verdict's document, None for a verdict without times."""
    timing = verdict.get("timing") or {}
    interval, kernel = timing.get("ratio") or {}, timing.get("device", {}).get("candidate", {})
    ratio, median = interval.get("ratio"), kernel.get("median")
    if ratio is None or median is None:
        return None
    return Speed(
        cell=str(timing.get("cell")),
        microseconds=median,
        bar=str(timing.get("bar")),
        ratio=ratio,
        low=interval.get("low"),
        high=interval.get("high"),
    )


def verdict_document(value: Any, where: str = "the verdict") -> dict[str, Any]:
    """`value` as a verdict's document, with all of its keys. Raises Mistyped."""
    found: dict[str, Any] = typed(value, VerdictDocument, where)
    if found.get("schema", SCHEMA) != SCHEMA:
        raise Mistyped(f"{where} is not of the schema {SCHEMA}")
    if len(found.get("reason", "")) > LONGEST_REASON:
        raise Mistyped(f"{where}.reason is longer than {LONGEST_REASON:,} characters")
    return found


def ratio(timing: Mapping[str, Any] | None) -> float | None:
    """Time of the fastest baseline over the kernel's own, out of a verdict's timing; None where it
    was not timed.

    Of several shapes it is the geometric mean.
    """
    mean = timing.get("geometric_mean") if timing else None
    if isinstance(mean, (int, float)):
        return float(mean)
    interval = timing.get("ratio") if timing else None
    value = interval.get("ratio") if isinstance(interval, Mapping) else None
    return float(value) if isinstance(value, (int, float)) else None


def device_microseconds(timing: Mapping[str, Any] | None) -> float | None:
    """The kernel's median device time in microseconds; None where it was not timed."""
    candidate = (timing or {}).get("device", {}).get("candidate")
    return (
        float(candidate["median"])
        if isinstance(candidate, Mapping) and "median" in candidate
        else None
    )
