"""The tuner: sweeps the launch constants of a correct kernel, by races that the referee holds on a GPU.

Launch by launch: first block sizes together with the number of warps, then the number of stages, each with what was found
best before. A change is taken when the race shows it to be faster by more than `MARGIN`; less than that is noise. The races
only pick; the picked kernel is then judged like any draft, on fresh measurements. All of it holds for the timed cell.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kmint_tui.minting.knobs import LEAST_BLOCK, MOST_BLOCK, STAGES, WARPS, Knob, described, knobs, turned

if TYPE_CHECKING:
    from referee.device.jobs import TaskName
    from referee.race import Lap

MARGIN = 1.01
MOST_VARIANTS = 36
BLOCK_FACTORS = (0.25, 0.5, 1, 2, 4)
OPTIONS = {WARPS: (1, 2, 4, 8, 16, 32), STAGES: (1, 2, 3, 4)}


class Racer(Protocol):
    """What is needed of the referee (`referee.judge.Referee`)."""

    def race(self, sources: Sequence[str], op: str | TaskName, *, seed: int | None = None) -> Sequence[Lap]: ...


@dataclass(frozen=True)
class Trial:
    """One variant: what it changes, microseconds, how much faster than the draft it is, or why it was not timed."""

    changes: str
    us: float | None
    ratio: float | None
    refused: str = ""


@dataclass(frozen=True)
class Sweep:
    """What the tuner found for draft `draft`. `source` is the changed kernel, None where nothing was faster; `reason` says why."""

    draft: int
    trials: tuple[Trial, ...]
    source: str | None
    changes: str
    reason: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The `tuning` part of a `kmint.mint/1` document."""
        content = {name: value for name, value in asdict(self).items() if name != "source"}
        return {**content, "trials": [asdict(trial) for trial in self.trials]}


def sweep(index: int, source: str, race: Callable[[Sequence[str]], Sequence[Lap]]) -> Sweep:
    """Sweep the constants of draft number `index`. Raises what `race` raises."""
    began = time.monotonic()
    all_knobs = knobs(source)
    if not all_knobs:
        reason = "it has no launch constants of its own to change, or brings configurations that the referee tries by itself"
        return Sweep(index, (), None, "", reason, 0.0)
    chosen: dict[Knob, int] = {}
    trials: list[Trial] = []
    best = 1.0
    for group in _groups(all_knobs):
        variants = [{**chosen, **values} for values in _values(group)]
        sources = [turned(source, values) for values in variants]
        known = [(values, text) for values, text in zip(variants, sources, strict=True) if text is not None]
        if not known:
            continue
        # Each race is run against the draft itself, so that ratios of different races can be compared.
        laps = race([source, *(text for _, text in known)])[1:]
        for (values, _), lap in zip(known, laps, strict=True):
            trials.append(Trial(described(values), lap.us, lap.ratio, lap.refused))
            if lap.ratio is not None and lap.ratio > best * MARGIN:
                best, chosen = lap.ratio, values
    changes, seconds = described(chosen), round(time.monotonic() - began, 2)
    if not changes:
        return Sweep(index, tuple(trials), None, "", f"none of {len(trials)} variants was faster by {MARGIN - 1:.0%}", seconds)
    reason = f"{best:.3f}x as fast as the draft in a race of {len(trials)} variants"
    return Sweep(index, tuple(trials), turned(source, chosen), changes, reason, seconds)


def _groups(all_knobs: Sequence[Knob]) -> Iterator[list[Knob]]:
    """Knobs to be turned together. One that is written where an earlier launch's is belongs to that one."""
    taken: set[tuple[int, int]] = set()
    for _, launch in itertools.groupby(sorted(all_knobs, key=lambda knob: knob.launch), key=lambda knob: knob.launch):
        own = [knob for knob in launch if not taken & set(knob.places)]
        taken |= {place for knob in own for place in knob.places}
        yield [knob for knob in own if knob.name != STAGES]
        yield [knob for knob in own if knob.name == STAGES]


def _values(group: Sequence[Knob]) -> list[dict[Knob, int]]:
    """All combinations of changes, those nearest to the present values where there are too many."""
    combinations = itertools.product(*(_choices(knob) for knob in group))
    changes = [{knob: value for knob, value in zip(group, values, strict=True) if value != knob.value} for values in combinations]
    return sorted(filter(None, changes), key=_distance)[:MOST_VARIANTS]


def _choices(knob: Knob) -> Iterator[int]:
    if knob.kind == "option":
        yield from OPTIONS[knob.name]
        return
    assert knob.value is not None
    for factor in BLOCK_FACTORS:
        if LEAST_BLOCK <= (value := int(knob.value * factor)) <= MOST_BLOCK:
            yield value


def _distance(values: Mapping[Knob, int]) -> float:
    return sum(abs(math.log2(value / (knob.value or value))) for knob, value in values.items())
