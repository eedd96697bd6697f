"""Tunes kernels at shapes: races their launch constants and structures, and judges the winners.

The structures are the kernels that passed in a session, and those that the template writes for the
shape. At each shape they race, and the constants of the fastest are swept (`minting/tuning.py`).
Every shape gets an equal part of the time that is
left. The winners become drafts of the tuner in a new session, and the referee times them and their
parents at all shapes. The cache remembers races, and the history verdicts. So the same request goes
on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmint_tui.core.races import RememberedRace, race_file
from kmint_tui.core.save import refuse_reference
from kmint_tui.core.shape import asked_shapes
from kmint_tui.core.shape_times import fastest, mean, named
from kmint_tui.errors import EnvironmentUnfit, UsageError
from kmint_tui.history.records import draft_id, parse_id
from kmint_tui.history.store import PASSED
from kmint_tui.history.tuned import TUNED
from kmint_tui.minting.tuning import MOST_STRUCTURES, race_at, tune_at, written_at
from kmint_tui.save.choosing import Row

if TYPE_CHECKING:
    from kmint_tui.core.judges import Opened
    from kmint_tui.graph.program import Program
    from kmint_tui.history.records import Draft, Session
    from kmint_tui.history.tuned import TunedSessions
    from kmint_tui.minting.tuning import Racer, Sweep, TemplateKernels
    from referee.asked_shape import AskedShape
    from referee.ops import Op
    from referee.problem import TaskName
    from referee.verdict import Verdict

AT_ONCE = 12
"""Variants of one race: few, so that a budget ends soon after its last race."""
MINUTES = 10.0
ROWS, HEADS = ("8192x4096", "32768x1024", "2048x16384"), ("32768x128", "4096x128", "32768x64")
"""Shapes that a tune takes by default: those of common models."""


@dataclass(frozen=True, kw_only=True)
class TuneAsked:
    """A request: a draft or a session, shapes as `--shape` takes them, and the minutes of races.

    Without `template` only the session's kernels race.
    """

    wanted: str
    shapes: tuple[str, ...] = ()
    dtype: str | None = None
    minutes: float = MINUTES
    template: bool = True


@dataclass(frozen=True)
class TuneStart:
    """The kernels to start from, the operation and the shapes."""

    session: Session
    drafts: tuple[Draft, ...]
    op: Op
    shapes: tuple[AskedShape, ...]


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The result: the session, the sweep of each shape, and the fastest kernel of each.

    `drafts` are the kernels that were judged; `rows` has the time of the best one at each shape.
    """

    op: str
    session: int
    sweeps: tuple[Sweep, ...]
    drafts: tuple[Draft, ...]
    rows: tuple[Row, ...]
    seconds: float

    @property
    def complete(self) -> bool:
        """False where time ran out before every variant was raced."""
        return all(one.complete for one in self.sweeps)

    @property
    def ids(self) -> tuple[str, ...]:
        """The drafts that are the fastest at a shape, in the order of the table."""
        return tuple(dict.fromkeys(row.draft for row in self.rows))

    def to_json(self) -> dict[str, Any]:
        """The content of `kmint.tuned/1`."""
        return {
            "op": self.op,
            "session": str(self.session),
            "complete": self.complete,
            "seconds": round(self.seconds, 2),
            "shapes": [row.to_json() for row in self.rows],
            "geometric_mean": mean(self.rows) if self.rows else None,
            "drafts": [_draft_json(one) for one in self.drafts],
            "tuning": [one.to_json() for one in self.sweeps],
        }


def start_of(history: TunedSessions, asked: TuneAsked) -> TuneStart:
    """The kernels, operation and shapes of a request. Raises UsageError before any work."""
    from referee.ops import get
    from referee.ops.signatures import ROPE_KINDS

    where = parse_id(asked.wanted)
    session = history.session(where.session)
    passed = [
        one
        for one in history.drafts(where.session)
        if one.outcome in PASSED and one.duplicate_of is None
    ]
    first: list[Draft] = []
    if where.number is not None:
        from kmint_tui.save.saving import verdict_of

        first = [history.draft(where.session, where.number)]
        verdict_of(first[0])
    elif not passed:
        raise UsageError(
            f"no kernel of session {asked.wanted} passed, so there is nothing to tune",
            fix="`kmint history` lists the sessions",
        )
    passed.sort(key=lambda one: (PASSED.index(str(one.outcome)), -(one.ratio or 0.0), one.number))
    drafts = (*first, *(one for one in passed if one not in first))[:MOST_STRUCTURES]
    refuse_reference(session, drafts[0])
    op = get(session.op)
    usual = HEADS if op.kind in ROPE_KINDS else ROWS
    # Only an operation with float16 alone has no bfloat16.
    dtype = asked.dtype or (None if op.kind == "dequant" else "bf16")
    shapes = tuple(dict.fromkeys(asked_shapes(op, asked.shapes or usual, dtype)))
    return TuneStart(session, drafts, op, shapes)


def tune(
    history: TunedSessions,
    start: TuneStart,
    asked: TuneAsked,
    opened: Opened,
    *,
    where: str,
    cache: Path,
    tell: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Tuned:
    """Tune the start at its shapes. `where` names the device and versions, `tell` gets progress.

    Raises KmintError; everything that was judged before it stays in the history.
    """
    from kmint_tui.minting.request import environment
    from referee.problem import TaskName

    began, racer = clock(), opened.racer
    assert racer is not None
    names = tuple(map(str, start.shapes))
    settings = {TUNED: asked.wanted, "shapes": list(names), "inputs": [], "fixed": []}
    session = history.open(start.session, settings, environment())
    parents = [history.keep_copy(session, one) for one in start.drafts]
    task = TaskName(start.op.name, shapes=names)
    program = _program(start.op, task) if asked.template else None
    sweeps, made = [], {parents[0].number: parents[0]}
    for at, shape in enumerate(names):
        now = clock()
        left = max(0.0, began + 60 * asked.minutes - now) / (len(names) - at)
        written = written_at(program, task, shape, {one.source for one in parents})
        raced = len(parents) + len(written.kernels)
        tell(f"{shape}: racing {raced} kernels, then launch constants")
        file = race_file(cache, start.op.name, shape, where)
        found = _swept(racer, task, shape, parents, written, file, _until(now + left, clock), tell)
        sweeps.append(found)
        changes = f"{found.words}, " if found.words else ""
        tell(f"{shape}: {draft_id(session, found.draft)}: {changes}{found.reason}")
        parent = history.draft(session, found.draft)
        if found.source is None:
            winner = parent
        elif found.structure:
            winner = history.keep_written(session, found.source, found.words)
        else:
            winner = history.keep_tuned(parent, found.source, found.changes, found.seconds)
        made |= {parent.number: parent, winner.number: winner}
    judged = _judged(history, list(made.values()), task, opened, where, start.shapes, tell)
    times = [named(one) for one in judged if one.outcome in PASSED]
    whole = [one for one in times if all(shape in one for shape in start.shapes)]
    if not whole:
        raise EnvironmentUnfit(
            f"no kernel was timed at every shape; session {session} has the reasons",
            title="nothing to choose from",
            fix=f"`kmint history show {session}` lists them",
        )
    rows = fastest(whole, start.shapes)
    return Tuned(
        op=start.op.name,
        session=session,
        sweeps=tuple(sweeps),
        drafts=tuple(judged),
        rows=rows,
        seconds=clock() - began,
    )


def _program(op: Op, task: TaskName) -> Program | None:
    from kmint_tui.graph.operations import program_of
    from kmint_tui.graph.program import OutOfScope

    try:
        return program_of(op, task)
    except OutOfScope:
        return None


def _until(end: float, clock: Callable[[], float]) -> Callable[[], bool]:
    return lambda: clock() < end


def _swept(
    racer: Racer,
    task: TaskName,
    shape: str,
    parents: Sequence[Draft],
    written: TemplateKernels,
    file: Path,
    go_on: Callable[[], bool],
    tell: Callable[[str], None],
) -> Sweep:
    from referee.variant_timing import VariantsNotTimed

    race = RememberedRace(
        race_at(racer, task, shape), file, lambda more: tell(f"{shape}: racing {more} variants")
    )
    structures = [(one.number, one.source) for one in parents]
    try:
        return tune_at(shape, structures, race, written=written, at_once=AT_ONCE, go_on=go_on)
    except VariantsNotTimed as error:
        raise EnvironmentUnfit(
            f"at {shape}: {error}",
            title="the race was not held",
            fix="the same command goes on where it stopped",
        ) from error


def _judged(
    history: TunedSessions,
    drafts: Sequence[Draft],
    task: TaskName,
    opened: Opened,
    where: str,
    shapes: Sequence[AskedShape],
    tell: Callable[[str], None],
) -> list[Draft]:
    """The drafts with verdicts at all shapes; a verdict of this place is not made again."""
    from kmint_tui.core.referee import unfit
    from kmint_tui.history.verdicts import ratio

    def verdict(one: Draft) -> Verdict:
        return opened.judge.judge(one.source, task, level="full", strict=True)

    left = [one for one in drafts if not _is_known(one, shapes, where)]
    for one in left:
        tell(f"judging {one.id} at {len(shapes)} shapes")
    # Devices of a farm judge side by side; one device times one kernel at a time.
    places = opened.farm.devices if opened.farm is not None else 1
    with ThreadPoolExecutor(places) if places > 1 else nullcontext() as pool:
        verdicts = pool.map(verdict, left) if pool is not None else map(verdict, left)
        for one, found in zip(left, verdicts, strict=True):
            if found.verdict == "error":
                raise unfit(found)
            document = found.to_json()
            history.set_verdict(one.session, one.number, document, ratio=ratio(found.timing))
            tell(f"{one.id}: {found.verdict}: {found.reason}")
    return [history.draft(one.session, one.number) for one in drafts]


def _is_known(draft: Draft, shapes: Sequence[AskedShape], where: str) -> bool:
    """True for a draft that was rejected, or timed at every shape at this place."""
    if draft.verdict is None:
        return False
    times = named(draft)
    rejected = draft.outcome == "rejected"
    return rejected or all(shape in times and times[shape].where == where for shape in shapes)


def _draft_json(draft: Draft) -> dict[str, Any]:
    return {
        "id": draft.id,
        "author": draft.author,
        "parent": draft.parent,
        "changes": draft.changes,
        "verdict": draft.verdict,
    }
