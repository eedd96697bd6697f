"""The report of a timing run as plain data. Torch-free: the judge's process reads it.

All times except `seconds` (the duration of the measurement) are microseconds. `device` times are
between two events on the device, with a flushed L2 cache and a full queue. `call` times are a
caller's waiting times with host work. `graph` times are device times of the same work as a CUDA
graph.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from referee.timing.stats import Decision, Interval, Summary

CANDIDATE, EAGER, COMPILE, AUTOTUNE, GRAPHED, FLOOR = (
    "candidate",
    "eager",
    "compile",
    "max-autotune-no-cudagraphs",
    "max-autotune",
    "floor",
)
BELOW_FLOOR = "below_floor"
BARS = (EAGER, COMPILE, AUTOTUNE)


@dataclass(frozen=True)
class ChosenConfigs:
    """The chosen configuration of each launch by step number, and microseconds of all tried."""

    choice: dict[int, int]
    times: dict[int, dict[int, float]]
    refused: dict[int, dict[int, str]]


@dataclass(frozen=True)
class TimingOptions:
    """The length of a measurement. A block is `rounds` rounds, or fewer if memory is short.

    Measuring stops after at least `least_rounds` when a 99 % interval shows win, loss or tie, or
    shows late that none is possible. The 95 % interval must also be at most `most_width` of the
    ratio wide. Else it stops after `most_rounds` or `seconds`; the time for `least_rounds` of
    calls, memory and checks is extra. With fewer than `least_rounds` no result is a win, and a loss
    must hold at 99 %. `show_graphed` adds the `max-autotune` baseline, which is shown and never the
    bar.
    """

    rounds: int = 40
    least_rounds: int = 240
    most_rounds: int = 480
    most_width: float = 0.01
    seconds: float = 8.0
    show_graphed: bool = False


@dataclass(frozen=True)
class Span:
    """Lowest, median and highest sample of the blocks' duration."""

    low: float
    median: float
    high: float


@dataclass(frozen=True)
class Timing:
    """One candidate's times at one test case against every baseline, with the evidence.

    `ratios` are baseline / candidate (above 1: the candidate is faster); `ratios["floor"]` is floor
    / candidate. `bar` is the fastest baseline by median device time, which alone decides. `missing`
    gives reasons for missing baselines. `kernels` names each baseline's kernels as the profiler saw
    them. `window_us` is the time of an empty pair of events; every device time includes it.
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
    kernels: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and scalars, for the verdict's `timing`."""
        return asdict(self)


def timing_from_json(data: dict[str, Any]) -> Timing:
    """The inverse of `to_json`, for a report from a pipe."""
    rebuilt = dict(data)
    rebuilt["ratio"] = Interval(**data["ratio"]) if data["ratio"] else None
    rebuilt["ratios"] = {name: Interval(**value) for name, value in data["ratios"].items()}
    for part in ("device", "call", "graph"):
        rebuilt[part] = {name: Summary(**value) for name, value in data[part].items()}
    for part in ("sm_clock", "temperature", "power"):
        rebuilt[part] = Span(**data[part]) if data[part] else None
    for part in ("neighbours", "notes"):
        rebuilt[part] = tuple(data[part])
    rebuilt["kernels"] = {name: tuple(names) for name, names in data.get("kernels", {}).items()}
    return Timing(**rebuilt)
