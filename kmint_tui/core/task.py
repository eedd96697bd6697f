"""The task of a kernel: an operation of the catalogue, or the user's own reference."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kmint_tui.core.referee import no_gpu_reason
from kmint_tui.errors import EnvironmentUnfit, UsageError

if TYPE_CHECKING:
    from referee.ops import Op
    from referee.problem import TaskName
    from referee.reference.asked import Asked


def operation(text: str) -> Op:
    """The operation of that name or of those words.

    Raises UsageError with the candidates or the nearest names.
    """
    from kmint_tui.core.op_search import MOST_CANDIDATES, AmbiguousOp, resolve
    from referee.ops import UnknownOp

    try:
        return resolve(text)
    except AmbiguousOp as ambiguous:
        names = [op.name for op in ambiguous.candidates]
        more = f", and {len(names) - MOST_CANDIDATES} more" if len(names) > MOST_CANDIDATES else ""
        fix = f"name one of them: {', '.join(names[:MOST_CANDIDATES])}{more}"
        if more:
            fix += f"; `kmint ops --search {_quoted(text)}` lists them all"
        raise UsageError(
            f"{text!r} may be {len(names)} operations", fix=fix, title="ambiguous operation"
        ) from None
    except UnknownOp as unknown:
        nearest = ", ".join(unknown.nearest)
        fix = f"did you mean {nearest}?" if nearest else "`kmint ops` lists them all"
        raise UsageError(
            f"no operation is called {text!r}", fix=fix, title="unknown operation"
        ) from None


def with_long_rows(task: str | TaskName) -> str | TaskName:
    """The task with the long rows at which a GPU judges a kernel that is to be saved.

    A function has none.
    """
    from referee.problem import TaskName

    named = TaskName.of(task) if isinstance(task, str) else task
    return replace(named, wide=True) if named.file is None else task


def wanted_task(
    op: str | None, reference: Asked | None, shapes: tuple[str, ...] = (), dtype: str | None = None
) -> tuple[Op, str | TaskName]:
    """The operation and the task for the referee: one of the catalogue, or the user's own function.

    `shapes` and `dtype` are the values of `--shape` and `--dtype`. Raises UsageError where neither
    or both are given, or one is not usable. Raises EnvironmentUnfit for sizes that are too large
    for this machine.
    """
    if op is not None and reference is not None:
        raise UsageError(
            f"{op} and --reference exclude each other: a kernel is judged by one of them",
            fix="leave one of them out",
        )
    if op is None and reference is None:
        raise UsageError(
            "name an operation of the catalogue, or give --reference FILE.py:function",
            fix="`kmint ops` lists the operations",
        )
    from kmint_tui.core.shape import refuse_unjudged, wanted_shapes
    from referee.problem import TaskName

    if op is not None:
        known = operation(op)
        asked = wanted_shapes(known, shapes, dtype) if shapes or dtype else ()
        refuse_unjudged(known, asked)
        return known, TaskName(known.name, shapes=asked) if asked else op
    assert reference is not None
    if shapes or dtype:
        raise UsageError(
            "--shape and --dtype are for operations of the catalogue",
            fix="give the sizes with --input",
        )
    from referee.problem import Problem, too_large
    from referee.reference.task import load_task
    from referee.reference.unusable import InputError, TooLarge, UnusableReference

    here = reference.located
    try:
        found = load_task(here, "cpu" if no_gpu_reason() else "gpu").op
    except TooLarge as error:
        raise EnvironmentUnfit(
            _one_line(error),
            title="too large for this machine",
            fix="give smaller sizes with --input",
        ) from error
    except InputError as error:
        raise UsageError(
            _one_line(error),
            title="inputs not usable",
            fix="for example --input 'x=bf16[B,4096] eps=1e-6'",
        ) from error
    except UnusableReference as error:
        raise UsageError(
            _one_line(error),
            title="reference not usable",
            fix="`kmint judge --help` describes such a file",
        ) from error
    task = TaskName(found.name, here.file, here.function, here.inputs, here.fixed)
    if no_gpu_reason() and (large := too_large(Problem(task))):
        raise EnvironmentUnfit(large, title="too large for this machine")
    return found, task


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _quoted(text: str) -> str:
    return f'"{text}"' if " " in text else text
