"""The places of expert iteration: operations and functions at shapes.

The prompt states a shape as two powers of two, rows and columns; that is its class. Training learns
from the places that it asks for, so a held-out operation or function is refused there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forge.corpus import prompt_text
from forge.heldout import is_held_out
from kmint_tui.book.records import Place as BookPlace
from kmint_tui.core.book.planning import Timed, Work, timed_places
from kmint_tui.core.shape import asked_shapes, refuse_unjudged
from kmint_tui.core.task import operation, wanted_task
from kmint_tui.errors import UsageError
from kmint_tui.graph.operations import program_of
from kmint_tui.graph.program import OutOfScope, Program, Stage, stage_text
from referee.ops import Op
from referee.ops.signatures import KINDS
from referee.problem import Problem, TaskName
from referee.reference.asked import Asked

DTYPES = ("bf16", "fp16", "fp32")
"""Where a shape names no dtype, the first of these that an operation has."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """One task at one shape. `timed` is its case for the referee, and `program` its graph there."""

    name: str
    task: str | TaskName
    timed: Timed
    program: Program

    @property
    def stage(self) -> Stage:
        """The stage that the smith writes."""
        return self.program.stages[self.program.main]

    @property
    def shape_class(self) -> str:
        """The class of the stage's shape: the line of the prompt about it."""
        return stage_text(self.stage).splitlines()[1]

    @property
    def prompt(self) -> str:
        """The exact text that the smith reads."""
        return prompt_text(self.stage)

    @property
    def of(self) -> str:
        """The operation or function without its shape."""
        return self.timed.place.op


def places(
    ops: Sequence[str], functions: Sequence[str], shapes: Sequence[str], *, heldout: bool
) -> tuple[Place, ...]:
    """The places of operations at shapes, and of functions `FILE.py:FUNCTION@INPUTS`.

    Places with one prompt count once: the smith cannot tell them apart. `heldout` says that all of
    them must be held out, or else none may be. Raises KmintError.
    """
    found: dict[str, Place] = {}
    for place in (
        *(place for name in ops for place in _of_operation(operation(name), shapes)),
        *map(_of_function, functions),
    ):
        if is_held_out(place.program) != heldout:
            said = "not held out" if heldout else "held out, so training must not see it"
            raise UsageError(
                f"{place.of} is {said}", fix="forge/README.md lists the held-out names"
            )
        found.setdefault(place.prompt, place)
    return tuple(found.values())


def _of_operation(op: Op, shapes: Sequence[str]) -> Iterator[Place]:
    """An operation at every shape that it can have; at its example's where that says its sizes."""
    texts = _texts(op, tuple(shapes)) if shapes and op.kind in KINDS else ()
    refuse_unjudged(op, texts)
    for timed in timed_places(Work(op=op, shapes=texts)):
        try:
            program = program_of(op, timed.task)
        except OutOfScope as error:
            raise UsageError(f"{op.name} has no graph: {error}") from error
        yield Place(name=str(timed.place), task=timed.task, timed=timed, program=program)


def _texts(op: Op, shapes: tuple[str, ...]) -> tuple[str, ...]:
    last: UsageError | None = None
    for dtype in DTYPES:
        try:
            return tuple(dict.fromkeys(map(str, asked_shapes(op, shapes, dtype))))
        except UsageError as error:
            last = last or error
    assert last is not None
    raise last


def _of_function(text: str) -> Place:
    """The place of a function of a file, at the sizes of its inputs."""
    file, _, inputs = text.partition("@")
    path, _, function = file.partition(":")
    asked = Asked(path, function or None, (inputs,) if inputs else (), ())
    op, task = wanted_task(None, asked)
    assert not isinstance(task, str)
    try:
        program = program_of(op, task)
    except OutOfScope as error:
        raise UsageError(f"{file} has no graph: {error}") from error
    case = Problem(task).bench()
    if case is None:
        raise UsageError(f"{file} has no case that is timed")
    place = BookPlace(op.name, case.name, case.outputs[0].dtype)
    timed = Timed(place=place, case=case, task=task)
    return Place(name=f"{op.name} at {case.name}", task=task, timed=timed, program=program)
