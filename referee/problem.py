"""The problem that a candidate solves, and its name: an operation of the catalogue, a task of this
process, or a user's reference file.

Torch-free until a task is loaded.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from referee import ops
from referee.asked_shape import MOST_INTERPRETED, AskedShape, feasible, with_shapes
from referee.ops.cells import Profile
from referee.ops.fresh_cells import MOST_ROWS
from referee.ops.shipped import shipped
from referee.ops.spec import Cell, Op, TensorSpec
from referee.plans.dtypes import ITEMSIZE
from referee.reading.source import SourceError, parse
from referee.reference.asked import Asked
from referee.target import GIB

if TYPE_CHECKING:
    from referee.ops.task import Task

# Larger cells would take the interpreter minutes.
MOST_ELEMENTS = MOST_INTERPRETED


@dataclass(frozen=True)
class TaskName:
    """The task as the worker finds it: an operation by name, or a reference in a file.

    The file belongs to a user or to kmint. `function` None makes the file's only function or its
    `Model` the reference. `inputs` and `fixed` are texts of `--input` and `--fix`. The user's code
    runs in the worker.
    """

    op: str
    file: str | None = None
    function: str | None = None
    inputs: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    """Texts of `AskedShape`: shapes at which an operation with a formula is timed."""
    timed: tuple[str, ...] = ()
    """Those of `shapes` to time; the others are only checked. Empty means all."""
    wide: bool = False
    """Whether a GPU also judges long rows, as for a kernel that is to be saved."""

    @classmethod
    def of(cls, name: str) -> TaskName:
        """The operation of that name in the catalogue; kmint ships some as functions."""
        if not _is_function(name):
            return cls(name)
        found = shipped()[name]
        return cls(name, str(found.file), name, found.inputs)

    @property
    def asked(self) -> Asked | None:
        """The reference in a file; None for an operation with a formula."""
        if self.file is None:
            return None
        return Asked(self.file, self.function, self.inputs, self.fixed)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaskName:
        """The inverse of `asdict` through JSON."""
        listed = {name: tuple(data[name]) for name in ("inputs", "fixed", "shapes", "timed")}
        return cls(**{**data, **listed})


class Problem:
    """One operation with its cells. Raises UnknownOp or UnusableReference if it does not exist."""

    def __init__(
        self,
        wanted: str | Task | TaskName,
        *,
        without: frozenset[str] = frozenset(),
        seed: int | None = None,
    ) -> None:
        self._wanted, self._without, self._seed = wanted, without, seed
        self._given: Task | None = None
        self._loaded: dict[Profile, Task] = {}
        self.name: TaskName | None = None
        if isinstance(wanted, str):
            self.name = TaskName.of(wanted)
        elif isinstance(wanted, TaskName):
            self.name = wanted
        elif _in_catalogue(wanted.op):
            self.name = TaskName.of(wanted.op.name)
        else:
            self._given = wanted

    @cached_property
    def op(self) -> Op:
        """The operation."""
        if self.name is not None and (
            self.name.file is None or self.name == TaskName.of(self.name.op)
        ):
            return ops.get(self.name.op)
        return self.task("cpu").op

    @property
    def replayable(self) -> bool:
        """Whether the replay worker can load the task too."""
        return self.name is not None

    def task(self, profile: Profile) -> Task:
        """The task. Imports torch."""
        if profile not in self._loaded:
            task = self._given or self._load(profile)
            task = task.without(self._without) if self._without else task
            if task.scalars and self._seed is not None:
                from referee.ops.fresh_scalars import with_fresh_scalars

                task = with_fresh_scalars(task, self._seed)
            self._loaded[profile] = task
        return self._loaded[profile]

    @property
    def without(self) -> frozenset[str]:
        """Numbers of a user's reference that are not arguments of the kernel's `run`."""
        return self._without

    def drawing(self, seed: int) -> Problem:
        """The problem with numbers drawn from this seed, where it tries several."""
        return (
            Problem(self._wanted, without=self._without, seed=seed) if self.op.is_function else self
        )

    def fitting(self, source: str) -> Problem:
        """The problem for a kernel whose `run` leaves out numbers that the reference takes.

        The kernel is judged at their usual values only. Numbers that differ between the reference's
        own examples cannot be left out.
        """
        taken = parameters_of_run(source)
        if not self.op.is_function or taken is None:
            return self
        task = self.task("cpu")
        left_out = frozenset(scalar.name for scalar in task.scalars) - set(taken.names)
        if not left_out or taken.needed == len(task.op.arguments) or left_out & _varied(task):
            return self
        return Problem(self._wanted, without=left_out)

    def _load(self, profile: Profile) -> Task:
        assert self.name is not None
        if self.name.file is None:
            from referee.ops.task import load

            return load(self.name.op, profile)
        from referee.reference.task import load_task

        assert self.name.asked is not None
        return load_task(self.name.asked, profile)

    def cells(self, profile: Profile) -> tuple[Cell, ...]:
        """Every cell of the profile."""
        if self.name is not None and self.name.file is None:
            usual = ops.cells(self.op, profile=profile)
            asked = tuple(map(AskedShape.parse, self.name.shapes))
            if not asked:
                return usual
            timed = tuple(map(AskedShape.parse, self.name.timed)) or asked
            return with_shapes(self.op, usual, asked, profile, timed)
        return self.task(profile).cells

    def bench(self) -> Cell | None:
        """The cell that a GPU times, or None."""
        return next((cell for cell in self.cells("gpu") if cell.role == "bench"), None)


def _varied(task: Task) -> set[str]:
    own = (cell for cell in task.cells if "-scalars" not in cell.name)
    names = [name for name, _ in {(one.name, one.value) for cell in own for one in cell.scalars}]
    return {name for name in names if names.count(name) > 1}


def required(cells: Sequence[Cell]) -> list[Cell]:
    """The cells that a kernel must pass, the timed one included."""
    return [cell for cell in cells if cell.role != "capability"]


def partition_by_rows(cells: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """The cells whose rows fit every axis of a grid, and those with more rows."""
    plain = [one for one in cells if len(one.inputs[0].shape) == 2 and one.role == "required"]
    many = [cell for cell in plain if cell.rows > MOST_ROWS]
    return [cell for cell in cells if cell not in many], many


def capabilities(cells: Sequence[Cell]) -> list[Cell]:
    """The capability cells."""
    return [cell for cell in cells if cell.role == "capability"]


def too_large(problem: Problem) -> str:
    """The reason why no cell is small enough for the interpreter, or ""."""
    cells = required(problem.cells("cpu"))
    if not cells or any(map(feasible, cells)):
        return ""
    least = min((_largest_of(cell) for cell in cells), key=lambda spec: prod(spec.shape))
    count = prod(least.shape)
    size = f"{count * ITEMSIZE[least.dtype] / GIB:.2f} GiB"
    words = f"the smallest sizes that the reference takes have a tensor {least.name} of {count:,} elements ({size})"
    how = "give smaller ones with --input or get_inputs(), or judge on a GPU"
    return f"{words}, and Triton's interpreter takes {MOST_ELEMENTS:,} at most: {how}"


def _largest_of(cell: Cell) -> TensorSpec:
    return max((*cell.inputs, *cell.outputs), key=lambda spec: prod(spec.shape))


def _in_catalogue(op: Op) -> bool:
    if op.origin == "user":
        return False
    try:
        return ops.get(op.name) == op
    except ops.UnknownOp:
        return False


def _is_function(name: str) -> bool:
    try:
        return ops.get(name).is_function
    except ops.UnknownOp:
        return False


@dataclass(frozen=True)
class Taken:
    """The names of all parameters, and how many of them have no default."""

    names: tuple[str, ...]
    needed: int


def parameters_of_run(source: str) -> Taken | None:
    """The parameters of the last top-level `run`; None for none, or any number of them."""
    try:
        tree = parse(source)
    except SourceError:
        return None
    found = [
        node.args for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "run"
    ]
    if not found or found[-1].vararg or found[-1].kwarg:
        return None
    positional = [*found[-1].posonlyargs, *found[-1].args]
    named = found[-1].kwonlyargs
    needed = len(positional) - len(found[-1].defaults) + found[-1].kw_defaults.count(None)
    return Taken(tuple(one.arg for one in (*positional, *named)), needed)
