"""Batch invariance: the bits of a row do not depend on the other rows or on its position.

Serving engines need it, because an answer must not change with the batch around it. The interpreter
runs some cases again with rotated rows, and runs one row and a few rows alone. The check is
reported for every kernel and required on request.

Limits: only a few cases run, and long rows run only if the property is required. Kernels with
atomics and autotuned kernels are skipped. References of users are skipped, because the referee does
not know which dimension holds the rows.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING

from referee.case_runs import same_bits
from referee.cpu_path import CpuPath
from referee.interpreter.interpret import Executed, Execution
from referee.ops.cells import contiguous_strides
from referee.ops.spec import Cell, TensorSpec, rows_are_told_apart
from referee.plans.plan import LaunchPlan
from referee.sandbox.zygote import MachineBusy
from referee.verdict import Check, Rejection

if TYPE_CHECKING:
    from torch import Tensor

CHECK = "batch_invariance"
SEVERAL, USUAL_ELEMENTS = 4, 1 << 15
MOST_PLACES = 8
"""Maximum number of rows that run alone. The bits of a single row may agree by chance."""
UNKNOWN = "not looked at"


@dataclass(frozen=True)
class Part:
    """A case made of `cell` neighbouring rows of the case `whole`, starting at each of `places`."""

    whole: Cell
    cell: Cell
    places: tuple[int, ...]


def parts_of(cells: Sequence[Cell], seed: int, *, long: bool) -> list[Part]:
    """Parts of the widest usual case of each dtype: one row, and a few rows.

    With `long`, parts of the longest case as well. `seed` chooses the rows.
    """
    chance = random.Random(f"{seed}\0batch")
    ordered = sorted(cells, key=attrgetter("columns"))
    several = [cell for cell in ordered if cell.rows >= SEVERAL - long and _dense_rows(cell)]
    widest = {
        cell.outputs[0].dtype: cell
        for cell in several
        if cell.rows >= SEVERAL and prod(cell.inputs[0].shape) <= USUAL_ELEMENTS
    }
    made = []
    longest = [max(several, key=attrgetter("columns"))] if several and long else []
    for whole in dict.fromkeys([*widest.values(), *longest]):
        rows = whole.rows
        for count in dict.fromkeys((1, chance.randint(2, rows - 1))):
            starts = range(rows - count + 1)
            places = chance.sample(starts, min(len(starts), max(1, MOST_PLACES // count)))
            made.append(Part(whole, _shorter(whole, count), tuple(places)))
    return made


def check(
    path: CpuPath,
    parts: Sequence[Part],
    plans: Mapping[Cell, LaunchPlan],
    *,
    required: bool = False,
) -> Check:
    """Run the parts and compare them with their whole cases. `plans` has the plan of each case.

    Unless the check is `required`, a busy machine only skips it. Raises JobLost or
    InterpreterUnsupported.
    """
    if path.data.task.op.is_function:
        return unknown("the rows of a user's reference are not known")
    if path.atomic:
        return unknown("the kernels use atomic operations, whose order is open")
    wanted = [plans[cell] for part in parts for cell in (part.whole, part.cell) if cell in plans]
    if any(plan.has_configs for plan in wanted):
        return unknown("which configuration runs is decided by timing, for each shape")
    parts = [part for part in parts if part.whole in plans and part.cell in plans]
    wholes = list(dict.fromkeys(part.whole for part in parts))
    if not wholes:
        return unknown("no case has rows that differ from its columns in number")
    runs = []
    for whole in wholes:
        inputs = path.data.inputs(whole)
        turned = _rolled(inputs, whole.rows)
        runs += [Execution(plans[whole], inputs), Execution(plans[whole], turned)]
    placed = [(part, first) for part in parts for first in part.places]
    for part, first in placed:
        some = _some(path.data.inputs(part.whole), part.whole.rows, first, part.cell.rows)
        runs.append(Execution(plans[part.cell], some))
    try:
        answers = path.execute(runs)
    except MachineBusy as busy:
        if required:
            raise
        return unknown(str(busy))
    if isinstance(answers[-1], Rejection):
        return unknown(answers[-1].reason)
    outputs = [answer.outputs for answer in answers if isinstance(answer, Executed)]
    found = dict(zip(wholes, zip(outputs[::2], outputs[1::2], strict=False), strict=False))
    for whole, (plain, moved) in found.items():
        if not same_bits(_rolled(plain, whole.rows), moved):
            return _fails(whole, "where the rows are in another order")
    for (part, first), alone in zip(placed, outputs[2 * len(wholes) :], strict=True):
        count = part.cell.rows
        among = _some(found[part.whole][0], part.whole.rows, first, count)
        if not same_bits(among, alone):
            which = f"{count} of its rows are" if count > 1 else "one of its rows is"
            return _fails(part.whole, f"where {which} alone")
    same = "the bits of rows are the same alone, among others and in another order"
    return Check(CHECK, "pass", f"{same}, at {len(wholes)} cases")


def demanded(found: Check) -> Rejection | None:
    """The rejection if batch invariance is required and the check did not pass."""
    if found.status == "pass":
        return None
    return Rejection("honest", CHECK, f"batch invariance is required: {found.detail}")


def unknown(why: str) -> Check:
    """The report of a check that did not run."""
    return Check(CHECK, "skipped", f"{UNKNOWN}: {why}")


def _fails(cell: Cell, when: str) -> Check:
    how = "do not choose blocks, splits or kernels by the number of rows"
    return Check(CHECK, "fail", f"at {cell.name} the bits of a row differ {when}: {how}")


def _dense_rows(cell: Cell) -> bool:
    specs = (*cell.inputs, *cell.outputs)
    dense = all(one.strides == contiguous_strides(one.shape) and not one.offset for one in specs)
    return dense and rows_are_told_apart(cell.rows, (spec.shape for spec in specs))


def _shorter(cell: Cell, rows: int) -> Cell:
    def cut(spec: TensorSpec) -> TensorSpec:
        if spec.shape[:1] != (cell.rows,):
            return spec
        shape = (rows, *spec.shape[1:])
        return replace(spec, shape=shape, strides=contiguous_strides(shape))

    inputs, outputs = tuple(map(cut, cell.inputs)), tuple(map(cut, cell.outputs))
    return replace(cell, name=f"{cell.name}-{rows}-rows", inputs=inputs, outputs=outputs)


def _rolled(tensors: Sequence[Tensor], rows: int) -> tuple[Tensor, ...]:
    return tuple(tensor.roll(1, 0) if tensor.shape[:1] == (rows,) else tensor for tensor in tensors)


def _some(tensors: Sequence[Tensor], rows: int, first: int, count: int) -> tuple[Tensor, ...]:
    piece = slice(first, first + count)
    return tuple(one[piece].clone() if one.shape[:1] == (rows,) else one for one in tensors)
