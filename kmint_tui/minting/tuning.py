"""The tuner: it sweeps the launch constants of a correct kernel by races on a GPU.

It takes the launches one by one: first block sizes together with the number of warps, then the
number of stages. Each step starts from the best values so far. A change counts when it is faster by
more than `MARGIN`; less than that is noise. The races only pick a kernel; the referee then judges
it like any draft, on new measurements. All of it holds for the timed case.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kmint_tui.minting.knobs import (
    LEAST_BLOCK,
    MOST_BLOCK,
    STAGES,
    WARPS,
    Knob,
    describe,
    knobs,
    with_values,
)

if TYPE_CHECKING:
    from kmint_tui.minting.drafts import MintDraft
    from kmint_tui.minting.request import MintRequest
    from referee.problem import TaskName
    from referee.variant_timing import VariantTime


MARGIN = 1.01
MOST_VARIANTS = 36
BLOCK_FACTORS = (0.25, 0.5, 1, 2, 4)
OPTIONS = {WARPS: (1, 2, 4, 8, 16, 32), STAGES: (1, 2, 3, 4)}


class Racer(Protocol):
    """The part of the referee (`referee.judge.Referee`) that the tuner needs."""

    def time_variants(
        self, sources: Sequence[str], op: str | TaskName, *, seed: int | None = None
    ) -> Sequence[VariantTime]: ...


@dataclass(frozen=True)
class Trial:
    """One variant: its changes, its time in microseconds and its speed over the draft's.

    `refused` is the reason why it was not timed.
    """

    changes: str
    us: float | None
    ratio: float | None
    refused: str = ""


@dataclass(frozen=True)
class Sweep:
    """The tuner's result for draft number `draft`. `source` is the changed kernel.

    It is None where nothing was faster; `reason` explains the result. `seconds` is the time of the
    sweep.
    """

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


def sweep(index: int, source: str, race: Callable[[Sequence[str]], Sequence[VariantTime]]) -> Sweep:
    """Sweep the constants of draft number `index`. Passes on the errors of `race`."""
    began = time.monotonic()
    all_knobs = knobs(source)
    if not all_knobs:
        reason = "it has no launch constants to change, or it brings configurations, which the referee already tries"
        return Sweep(index, (), None, "", reason, 0.0)
    chosen: dict[Knob, int] = {}
    trials: list[Trial] = []
    best = 1.0
    for group in _groups(all_knobs):
        variants = [{**chosen, **values} for values in _values(group)]
        sources = [with_values(source, values) for values in variants]
        known = [
            (values, text)
            for values, text in zip(variants, sources, strict=True)
            if text is not None
        ]
        if not known:
            continue
        # Each race is run against the draft itself, so that ratios of different races can be
        # compared.
        laps = race([source, *(text for _, text in known)])[1:]
        for (values, _), lap in zip(known, laps, strict=True):
            trials.append(Trial(describe(values), lap.us, lap.ratio, lap.refused))
            if lap.ratio is not None and lap.ratio > best * MARGIN:
                best, chosen = lap.ratio, values
    changes, seconds = describe(chosen), round(time.monotonic() - began, 2)
    if not changes:
        return Sweep(
            index,
            tuple(trials),
            None,
            "",
            f"none of {len(trials)} variants was faster by {MARGIN - 1:.0%}",
            seconds,
        )
    reason = f"{best:.3f}x as fast as the draft in a race of {len(trials)} variants"
    return Sweep(index, tuple(trials), with_values(source, chosen), changes, reason, seconds)


def _groups(all_knobs: Sequence[Knob]) -> Iterator[list[Knob]]:
    """Knobs to change together. A knob in the place of an earlier launch's belongs to that one."""
    taken: set[tuple[int, int]] = set()
    for _, launch in itertools.groupby(
        sorted(all_knobs, key=lambda knob: knob.launch), key=lambda knob: knob.launch
    ):
        own = [knob for knob in launch if not taken & set(knob.places)]
        taken |= {place for knob in own for place in knob.places}
        yield [knob for knob in own if knob.name != STAGES]
        yield [knob for knob in own if knob.name == STAGES]


def _values(group: Sequence[Knob]) -> list[dict[Knob, int]]:
    """All combinations of changes; where there are too many, those nearest to the present values."""
    combinations = itertools.product(*(_choices(knob) for knob in group))
    changes = [
        {knob: value for knob, value in zip(group, values, strict=True) if value != knob.value}
        for values in combinations
    ]
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


@dataclass(frozen=True)
class SweepEnded:
    """The tuner's thread has ended, with a sweep or with an error."""

    found: Sweep | Exception


class Tuner:
    """One session's use of the tuner. All methods are for the thread of the mint loop.

    The thread of the sweep calls `put`. Without a `racer` there is no sweep.
    """

    def __init__(
        self, racer: Racer | None, request: MintRequest, put: Callable[[SweepEnded], None]
    ) -> None:
        self._racer = racer
        self._request = request
        self._put = put
        self.running = False
        self.sweep: Sweep | None = None

    @property
    def waiting(self) -> bool:
        """True while a sweep is possible and none was made."""
        return self._racer is not None and self.sweep is None

    def start(self, draft: MintDraft) -> None:
        """Begin to sweep a draft; it ends with `SweepEnded`, after which `ended` is to be called."""
        assert self._racer is not None
        self.running = True
        threading.Thread(
            target=self._run, args=(self._racer, draft), name="tuner", daemon=True
        ).start()

    def ended(self, found: Sweep | Exception) -> None:
        """Take note of `SweepEnded`; after an error there is no other sweep."""
        self.running = False
        if isinstance(found, Exception):
            self._racer = None
        else:
            self.sweep = found

    def _run(self, racer: Racer, draft: MintDraft) -> None:
        try:
            found = sweep(
                draft.index,
                draft.source,
                lambda sources: racer.time_variants(sources, self._request.task),
            )
        except Exception as error:
            self._put(SweepEnded(error))
        else:
            self._put(SweepEnded(found))
