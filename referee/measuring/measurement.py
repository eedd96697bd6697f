"""What a timing run reports, as plain data. Torch-free: the judge's own process reads it.

All times but `seconds` (what measuring itself took) are microseconds. `device` times are between two events on the device
with the L2 cache flushed before each call and the queue kept full; `call` times are what a caller who waits for the result
sees, host work included; `graph` times are device times of the same work replayed as a CUDA graph.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from referee.measuring.stats import Decision, Interval, Summary

CANDIDATE, EAGER, COMPILE, AUTOTUNE, GRAPHED, FLOOR = "candidate", "eager", "compile", "max-autotune-no-cudagraphs", "max-autotune", "floor"
BELOW_FLOOR = "below_floor"
BARS = (EAGER, COMPILE, AUTOTUNE)


@dataclass(frozen=True)
class TimingOptions:
    """How long to measure. A block is `rounds` rounds, or as many as memory allows, each with values and addresses of its own.

    Measuring stops when after `least_rounds` or more a 99 % interval says win, loss or tie, or late that none ever would, and the 95 %
    interval is no wider than `most_width` of the ratio, else after `most_rounds` or `seconds`, besides what `least_rounds` of the calls
    themselves take, with filling memory for them and checking them. With fewer than `least_rounds` nothing is a win, and a loss must hold
    at 99 %.
    `show_graphed` adds the `max-autotune` baseline, which is shown and never the bar.
    """

    rounds: int = 40
    least_rounds: int = 240
    most_rounds: int = 480
    most_width: float = 0.01
    seconds: float = 8.0
    show_graphed: bool = False


@dataclass(frozen=True)
class Span:
    """Lowest, median and highest of the samples taken while the blocks ran."""

    low: float
    median: float
    high: float


@dataclass(frozen=True)
class Timing:
    """One candidate's times at one cell, against every baseline, with all that is needed to doubt them.

    `ratios` are baseline / candidate (above 1: the candidate is faster), `ratios["floor"]` is floor / candidate; `bar` is the
    fastest baseline by median device time, which alone decides. `missing` says which baselines could not be built and why.
    `window_us` is what an empty pair of events measures: it is in every device time and is not taken off.
    """

    decision: Decision
    reason: str
    cell: str
    bar: str | None
    ratio: Interval | None
    device: dict[str, Summary]
    ratios: dict[str, Interval]
    call: dict[str, Summary]
    graph: dict[str, Summary]
    missing: dict[str, str]
    bytes_read: int
    bytes_written: int
    floor_share: float | None
    rounds: int
    blocks: int
    dropped_rounds: int
    dropped: dict[str, int]
    sm_clock: Span | None
    temperature: Span | None
    power: Span | None
    power_capped: bool
    l2_bytes: int
    flush_bytes: int
    window_us: float
    neighbours: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and scalars, for the verdict's `timing`."""
        return asdict(self)


def timing_from_json(data: dict[str, Any]) -> Timing:
    """The inverse of `to_json`, for a report that crossed a pipe."""
    rebuilt = dict(data)
    rebuilt["ratio"] = Interval(**data["ratio"]) if data["ratio"] else None
    rebuilt["ratios"] = {name: Interval(**value) for name, value in data["ratios"].items()}
    for part in ("device", "call", "graph"):
        rebuilt[part] = {name: Summary(**value) for name, value in data[part].items()}
    for part in ("sm_clock", "temperature", "power"):
        rebuilt[part] = Span(**data[part]) if data[part] else None
    for part in ("neighbours", "notes"):
        rebuilt[part] = tuple(data[part])
    return Timing(**rebuilt)
