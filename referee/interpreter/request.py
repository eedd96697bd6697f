"""What the judge sends to the interpreter worker. Imports neither torch nor triton, so that both sides may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from referee.plans.arena import Layout
from referee.plans.plan import LaunchPlan


@dataclass(frozen=True)
class Run:
    """One execution of a plan: where its arena starts in the shared memory, which launch configuration, which program order.

    With `turns`, a seed, programs take turns; an earlier run of the same plan then says which of them. `relaxed` is that of `choices.py`.
    With `open_lanes` a lane that a load hides without saying what it gets is NaN, or an integer with all bits set. With `picked`, a seed,
    only a few programs of every launch run (`picking.py`). `again` has, by buffer, after how many bytes what an input holds comes again:
    only so many are in the shared memory.
    """

    plan: LaunchPlan
    places: Layout
    start: int
    config: int = 0
    backwards: bool = False
    turns: int | None = None
    relaxed: bool = False
    open_lanes: bool = False
    picked: int | None = None
    again: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """Clean kernel text, the runs in order, the shared memory's size in bytes, and lines of the text with atomics that nothing reads."""

    text: str
    runs: tuple[Run, ...]
    size: int
    unread: frozenset[int] = frozenset()
