"""The program of a catalogue operation, a remix, or a user's function.

The catalogue's programs are read from the data that ships with the package. The others are traced,
which imports torch.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmint_tui.graph.program import Program, Stage, at_shapes, from_json, stage_text

if TYPE_CHECKING:
    from referee.ops import Op
    from referee.problem import TaskName


FILE = Path(__file__).with_name("catalogue.json")


@lru_cache(maxsize=1)
def _document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def catalogue_names() -> tuple[str, ...]:
    """The operations that have one."""
    return tuple(_document())


@lru_cache(maxsize=256)
def catalogue_program(name: str) -> Program | None:
    """The program of a catalogue operation; None for other operations."""
    data = _document().get(name)
    return from_json(data) if data is not None else None


def program_of(op: Op, task: str | TaskName) -> Program:
    """The program. Its example is at the first shape of the task, where that names shapes.

    Raises OutOfScope, with the part of the function that has no graph.
    """
    asked = None if isinstance(task, str) else task.asked
    known = catalogue_program(op.name) if op.origin != "user" else None
    if known is None and asked is not None:
        from kmint_tui.graph.trace import traced_reference

        return traced_reference(asked)
    program = _of_operation(op) if known is None else known
    return program if isinstance(task, str) else at_shape(program, task)


def at_shape(program: Program, task: TaskName, shape: str = "") -> Program:
    """The program of an operation with its example at `shape`, else at the task's first shape.

    A task without shapes leaves the program as it is.
    """
    from referee.problem import Problem

    shapes = (shape,) if shape else task.shapes[:1]
    if not shapes:
        return program
    case = Problem(replace(task, shapes=shapes, timed=())).bench()
    assert case is not None
    return at_shapes(program, {spec.name: spec.shape for spec in case.inputs})


def same_operation(program: Program) -> str | None:
    """The catalogue's operation with the same steps and constants; None without one."""
    if len(program.stages) != 1 or len(program.results) != 1:
        return None
    wanted = _form(program.stages[0])
    for name in catalogue_names():
        known = catalogue_program(name)
        if known is not None and len(known.stages) == 1 and _form(known.stages[0]) == wanted:
            return name
    return None


def _form(stage: Stage) -> tuple[object, ...]:
    """The computation of a stage without its example."""
    lines = stage_text(stage).splitlines()
    return (lines[0], *lines[2:], stage.constants, stage.numbers)


@lru_cache(maxsize=16)
def _of_operation(op: Op) -> Program:
    from kmint_tui.graph.trace import traced_operation

    return traced_operation(op)
