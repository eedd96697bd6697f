"""The judge's request to the interpreter worker. Imports neither torch nor triton."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from referee.plans.arena import Layout
from referee.plans.plan import LaunchPlan


@dataclass(frozen=True, kw_only=True)
class Run:
    """One execution of a plan: its arena starts at byte `start` of the shared memory.

    `config` is the launch configuration, `backwards` the order of programs. With
    `interleaving_seed`, programs are interleaved; an earlier run of the same plan then decides
    their grouping. `relaxed` is as in `NumericFreedom`. With `open_lanes`, a lane that a load hides
    without a value becomes NaN, or an integer with all bits set. With `sample_seed`, only a sample
    of the programs runs (`program_sample`). `periodic_inputs` maps buffers to the period of an
    input in bytes; the shared memory holds only the first period.
    """

    plan: LaunchPlan
    places: Layout
    start: int
    config: int = 0
    backwards: bool = False
    interleaving_seed: int | None = None
    relaxed: bool = False
    open_lanes: bool = False
    sample_seed: int | None = None
    periodic_inputs: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """Clean kernel text, the runs in order, and the size of the shared memory in bytes.

    `unread` are lines of the text with atomics whose result is unused.
    """

    text: str
    runs: tuple[Run, ...]
    size: int
    unread: frozenset[int] = frozenset()
