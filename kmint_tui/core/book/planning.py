"""From the options of `kmint book build` to its work: one piece for each operation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from kmint_tui.book import order
from kmint_tui.book.records import Book, Entry, Place
from kmint_tui.core.shape import asked_shapes, refuse_unjudged
from kmint_tui.core.task import operation
from kmint_tui.errors import UsageError
from referee.ops import UnknownOp, get
from referee.ops.signatures import KINDS
from referee.problem import Problem, TaskName

if TYPE_CHECKING:
    from referee.ops import Cell, Op

ALL = "all"
DTYPES = ("bf16", "fp16", "fp32")
"""Where no dtype is given, the first of these that an operation has."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """One operation with the shapes that its book lacks, as texts of `AskedShape`.

    `shapes` is empty for an operation whose examples say its sizes.
    """

    op: Op
    shapes: tuple[str, ...]

    @property
    def task(self) -> str | TaskName:
        """The task with every shape."""
        return TaskName(self.op.name, shapes=self.shapes) if self.shapes else self.op.name


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One place of a piece of work: its timed case, and the task at this place alone."""

    place: Place
    case: Cell
    task: TaskName


@dataclass(frozen=True)
class Plan:
    """The work in its order, the number of places that the book has already, and notes on
    operations that were left out.
    """

    work: tuple[Work, ...]
    known: int
    notes: tuple[str, ...]


@lru_cache(maxsize=1024)
def timed_places(work: Work) -> tuple[Timed, ...]:
    """The places of a piece of work; loads the task of an operation that is a function."""
    problem = Problem(work.task)
    cases = [case for case in problem.cells("gpu") if case.role == "bench"]
    if not work.shapes:
        case = cases[0]
        assert problem.name is not None
        place = Place(work.op.name, case.name, case.outputs[0].dtype)
        return (Timed(place=place, case=case, task=problem.name),)
    return tuple(
        Timed(
            place=_place(work.op.name, shape),
            case=case,
            task=TaskName(work.op.name, shapes=(shape,)),
        )
        for shape, case in zip(work.shapes, cases, strict=True)
    )


def work_of(entries: Sequence[Entry]) -> Work:
    """The work of judging entries of one operation at their shapes.

    Raises UsageError for an operation or a shape that this kmint, or this GPU, does not have. Raises
    EnvironmentUnfit for a row that is too long to be judged without a GPU.
    """
    name = entries[0].op
    try:
        op = get(name)
    except UnknownOp:
        raise UsageError(f"this kmint has no operation {name}") from None
    if op.kind not in KINDS:
        return Work(op=op, shapes=())
    texts = tuple(f"{one.shape}:{one.dtype}" for one in entries)
    found = asked_shapes(op, texts, None)
    if len(found) != len(texts):
        raise UsageError("an entry of the book is at several numbers of rows")
    shapes = tuple(dict.fromkeys(map(str, found)))
    refuse_unjudged(op, shapes)
    return Work(op=op, shapes=shapes)


def places_of(some: Iterable[Work]) -> Iterator[Timed]:
    """The places of many pieces of work; those whose tasks take long to load come last."""
    for work in sorted(some, key=lambda one: not one.shapes):
        yield from timed_places(work)


def wanted_names(texts: Sequence[str]) -> tuple[str, ...] | None:
    """The operations of `--ops a,b`; None means all. Raises UsageError."""
    names = [name for text in texts for name in text.split(",") if name.strip()]
    if not names or ALL in names:
        return None
    return tuple(dict.fromkeys(operation(name.strip()).name for name in names))


def check_shapes(names: tuple[str, ...] | None, shapes: tuple[str, ...], dtype: str | None) -> None:
    """Raise UsageError for shapes that the named operations, or no operation, can have."""
    if shapes or dtype:
        for op in map(operation, names or ("rmsnorm",)):
            if op.kind in KINDS:
                _shapes(op, shapes, dtype)


def plan(
    names: tuple[str, ...] | None,
    shapes: tuple[str, ...],
    dtype: str | None,
    book: Book,
    *,
    versions: tuple[str | None, str | None],
    again: bool = False,
) -> Plan:
    """The work that `book` lacks, the most used operations first.

    An entry counts where it has the `versions` of torch and Triton; with `again` none counts.
    Raises UsageError for shapes that no operation can have, or that a named one cannot have.
    """
    check_shapes(names, shapes, dtype)
    have = {} if again else {one.place: one for one in book.entries if one.made_with(*versions)}
    held = {place.op for place in have}
    work: list[Work] = []
    notes: list[str] = []
    known = 0
    for op in order.in_order(names):
        if op.kind not in KINDS:
            known += op.name in held
            work += [] if op.name in held else [Work(op=op, shapes=())]
            continue
        try:
            found = _shapes(op, shapes, dtype)
        except UsageError as error:
            if names is not None:
                raise
            notes.append(f"{op.name} is left out: {error.message}")
            continue
        lacking = tuple(shape for shape in found if _place(op.name, shape) not in have)
        known += len(found) - len(lacking)
        if lacking:
            work.append(Work(op=op, shapes=lacking))
    return Plan(tuple(work), known, tuple(notes))


def _shapes(op: Op, shapes: tuple[str, ...], dtype: str | None) -> tuple[str, ...]:
    """The texts of an operation's shapes. Raises UsageError."""
    wanted = shapes or order.usual_shapes(op)
    last: UsageError | None = None
    for one in (dtype,) if dtype else DTYPES:
        try:
            return tuple(dict.fromkeys(map(str, asked_shapes(op, wanted, one))))
        except UsageError as error:
            last = last or error
    assert last is not None
    raise last


def _place(op: str, shape: str) -> Place:
    size, _, dtype = shape.partition(":")
    return Place(op, size, dtype)
