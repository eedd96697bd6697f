"""The tuner: it sweeps the launch constants of a correct kernel by races on a GPU.

At several shapes every shape has a separate sweep. It begins with the fastest of the given kernels
there, since another structure may suit another shape. The template's structures compete as well.

It takes the launches one by one: first block sizes together with the number of warps, then the
number of stages. Each step starts from the best values so far. A change counts when it is faster by
more than `MARGIN`; less than that is noise. The races only pick a kernel; the referee then judges
it like any draft, on new measurements.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from kmint_tui.history.records import Author, tuned_by
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
    from kmint_tui.graph.program import Program
    from kmint_tui.minting.drafts import MintDraft
    from kmint_tui.minting.request import MintRequest
    from kmint_tui.template.variants import Untried, Variant
    from referee.problem import TaskName
    from referee.variant_timing import VariantTime


MARGIN = 1.01
MOST_VARIANTS = 36
MOST_STRUCTURES = 6
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
    shape: str = ""
    """The shape of the races as `--shape` takes it; empty for the usual one."""
    complete: bool = True
    """False where time ran out before every variant was raced."""
    gain: float | None = None
    """Speed of `source` over the kernel whose constants were swept, by the races."""
    structure: str = ""
    """The template's structure that won at this shape; empty where the draft was swept."""

    @property
    def words(self) -> str:
        """The structure and the changed constants."""
        return ", ".join(filter(None, (self.structure, self.changes)))

    def maker(self, author: Author, changes: str) -> tuple[Author, str]:
        """The author and changes of `source`; those given are of the draft that was swept."""
        if self.structure:
            return tuned_by("template", self.structure, self.changes)
        return tuned_by(author, changes, self.changes)

    def to_json(self) -> dict[str, Any]:
        """The `tuning` part of a `kmint.mint/1` document."""
        content = {name: value for name, value in asdict(self).items() if name != "source"}
        return {**content, "trials": [asdict(trial) for trial in self.trials]}


Race = Callable[[Sequence[str]], "Sequence[VariantTime]"]
"""Times kernels against the first of them."""


@dataclass(frozen=True)
class TemplateKernels:
    """The kernels that the template writes for a shape, and the structures that it leaves out."""

    kernels: tuple[Variant, ...] = ()
    untried: tuple[Untried, ...] = ()


def tune_at(
    shape: str,
    structures: Sequence[tuple[int, str]],
    race: Race,
    *,
    written: TemplateKernels = TemplateKernels(),  # noqa: B008  # frozen
    at_once: int = MOST_VARIANTS,
    go_on: Callable[[], bool] = lambda: True,
) -> Sweep:
    """Race kernels, numbers and sources, at a shape, and sweep the constants of the fastest.

    Kernels that the template has `written` race too; its other structures are trials without a
    time. The first of `structures` keeps its place
    unless another is faster by `MARGIN`. `at_once` and `go_on` are those of `sweep`. Raises
    VariantsNotTimed where no race was held.
    """
    from referee.variant_timing import VariantsNotTimed

    names = {one.source: one.words for one in written.kernels}
    left = [*structures, *((structures[0][0], one.source) for one in written.kernels)]
    fastest = left[0]
    trials = [Trial(one.words, None, None, f"not raced: {one.reason}") for one in written.untried]
    while len(left) > 1:
        try:
            laps = race([source for _, source in left])
        except VariantsNotTimed:
            # A kernel that fails at this shape does not keep the others from it.
            left = left[1:]
            fastest = left[0]
            continue
        best = MARGIN
        for (number, source), lap in list(zip(left, laps, strict=True))[1:]:
            trial = names.get(source, f"draft {number}")
            trials.append(Trial(trial, lap.us, lap.ratio, lap.refused))
            if lap.ratio is not None and lap.ratio > best:
                best, fastest = lap.ratio, (number, source)
        break
    found = sweep(*fastest, race, at_once=at_once, go_on=go_on)
    structure = names.get(fastest[1], "")
    return replace(
        found,
        shape=shape,
        trials=(*trials, *found.trials),
        structure=structure,
        source=found.source or (fastest[1] if structure else None),
    )


def sweep(
    index: int,
    source: str,
    race: Race,
    *,
    at_once: int = MOST_VARIANTS,
    go_on: Callable[[], bool] = lambda: True,
) -> Sweep:
    """Sweep the constants of draft number `index`. Passes on the errors of `race`.

    A race has at most `at_once` variants. Before each one `go_on` says whether there is time.
    """
    began = time.monotonic()
    all_knobs = knobs(source)
    if not all_knobs:
        reason = "it has no launch constants to change, or it brings configurations, which the referee already tries"
        return Sweep(index, (), None, "", reason, 0.0)
    chosen: dict[Knob, int] = {}
    trials: list[Trial] = []
    best, complete = 1.0, True
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
        for part in (known[at : at + at_once] for at in range(0, len(known), at_once)):
            if not go_on():
                complete = False
                break
            # Each race is run against the draft itself, so that ratios of different races can be
            # compared.
            laps = race([source, *(text for _, text in part)])[1:]
            for (values, _), lap in zip(part, laps, strict=True):
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
            complete=complete,
        )
    reason = f"{best:.3f}x as fast as the draft in a race of {len(trials)} variants"
    return Sweep(
        index,
        tuple(trials),
        with_values(source, chosen),
        changes,
        reason,
        seconds,
        complete=complete,
        gain=round(best, 4),
    )


def race_at(racer: Racer, task: str | TaskName, shape: str) -> Race:
    """The races of a task at one of its shapes; at the timed case with an empty text."""
    if not shape:
        return lambda sources: racer.time_variants(sources, task)
    assert not isinstance(task, str)
    alone = replace(task, shapes=(shape,))
    return lambda sources: racer.time_variants(sources, alone)


def written_at(
    program: Program | None, task: str | TaskName, shape: str, known: Collection[str]
) -> TemplateKernels:
    """The kernels that the template writes for a task at a shape, without those in `known`.

    None without a program. An empty `shape` is the timed one.
    """
    from kmint_tui.graph.operations import at_shape
    from kmint_tui.template.variants import untried, variants

    if program is None:
        return TemplateKernels()
    if shape and not isinstance(task, str):
        program = at_shape(program, task, shape)
    kernels = tuple(one for one in variants(program) if one.source not in known)
    return TemplateKernels(kernels, untried(program))


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
    """The tuner's thread has ended, with a sweep for each shape or with an error."""

    found: tuple[Sweep, ...] | Exception


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
        self.sweeps: tuple[Sweep, ...] = ()

    @property
    def waiting(self) -> bool:
        """True while a sweep is possible and none was made."""
        return self._racer is not None and not self.sweeps

    @property
    def shapes(self) -> tuple[str, ...]:
        """The shapes to sweep at; one empty text for the usual shape."""
        task = self._request.task
        return ("",) if isinstance(task, str) else task.shapes or ("",)

    def start(self, drafts: Sequence[MintDraft]) -> None:
        """Begin to sweep at each shape, from the best draft on.

        It ends with `SweepEnded`, after which `ended` is to be called. At one shape only the first
        draft counts, because the verdicts have compared them there.
        """
        assert self._racer is not None
        self.running = True
        wanted = drafts[:MOST_STRUCTURES] if len(self.shapes) > 1 else drafts[:1]
        threading.Thread(
            target=self._run, args=(self._racer, wanted), name="tuner", daemon=True
        ).start()

    def ended(self, found: tuple[Sweep, ...] | Exception) -> None:
        """Take note of `SweepEnded`; after an error there is no other sweep."""
        self.running = False
        if isinstance(found, Exception):
            self._racer = None
        else:
            self.sweeps = found

    def leave_out(self) -> None:
        """Make no sweep: the history has the kernels of an earlier one."""
        self._racer = None

    def _run(self, racer: Racer, drafts: Sequence[MintDraft]) -> None:
        structures = [(draft.index, draft.source) for draft in drafts]
        known = {draft.source for draft in drafts}
        program = self._request.program if self._request.template else None
        try:
            found = tuple(
                tune_at(
                    shape,
                    structures,
                    race_at(racer, self._request.task, shape),
                    written=written_at(program, self._request.task, shape, known),
                )
                for shape in self.shapes
            )
        except Exception as error:
            self._put(SweepEnded(error))
        else:
            self._put(SweepEnded(found))
