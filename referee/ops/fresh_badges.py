"""Cells that earn badges, with what nobody could know beforehand: layouts, and rows and widths between those of the fixed ones.

How far rows lie apart, and how far a view from the start of its storage, comes from the verdict's secret seed. So do the rows of one more
cell for each badge that a kernel may keep at a few rows and lose at many, where it may have another way: padded rows, NaN and
infinities, heads of no power of two; and the width of one more where long rows may have another way, or where what masks leave nothing
of is a whole block. Limits: for badges of offsets the rows are those of the fixed cells; a replay's long rows are of float16.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import replace

from referee.ops.cells import aligned_stride, cell_of
from referee.ops.fresh_cells import DTYPES, GPU_ELEMENTS, GPU_ROWS, between, short
from referee.ops.plans import Draft, Layout
from referee.ops.signatures import KINDS, ROPE_KINDS
from referee.ops.spec import Cell, Dtype, Op, TensorSpec

ODD_GAPS, MORE_ALIGNED = range(1, 128, 2), range(64)
# More than most numbers of rows from which on kernels do several at once; the interpreter runs them one after the other, so no more.
CPU_ROWS = (257, 320)
# Between those of the fixed cells.
GPU_FEWEST = 64
# The badges by the labels in cells' names.
OF_MANY_ROWS: dict[str, Layout] = {
    "padded": "padded-offset", "padded-aligned": "aligned", "nonfinite": "contiguous", "head80": "contiguous"
}  # fmt: skip

LONG_ROWS = (12289, 33001)
"""Three quarters of which are longer than the largest usual block of several in a row."""
GPU_LONG_ROWS = (12289, 16384)
"""Within the block of a fixed cell, where whole rows are one."""
OF_LONG_ROWS: dict[str, Layout] = {"padded": "padded-offset", "nonfinite": "contiguous", "nonfinite-masked": "contiguous"}


def fresh_badges(op: Op, fixed: Sequence[Cell], seed: int, *, gpu: bool) -> list[Cell]:
    """The fixed cells with layouts of this seed, and those of many rows: the same seed gives the same cells. A user's as they are."""
    if op.kind not in KINDS:
        return list(fixed)
    chance = random.Random(hashlib.sha256(f"{seed}\0layouts".encode()).digest())
    more = [_of_many_rows(op, cell, label, chance, gpu) for label in OF_MANY_ROWS if (cell := _first(fixed, label))]
    if op.kind not in ROPE_KINDS and (op.regime != "short" or not gpu):
        more += [_of_long_rows(op, cell, label, chance, gpu) for label in OF_LONG_ROWS if (cell := _first(fixed, label))]
    named = {cell.name: cell for cell in (*fixed, *more)}
    return [_with_a_layout(cell, chance) for cell in named.values()]


def _first(cells: Sequence[Cell], label: str) -> Cell | None:
    return next((cell for cell in cells if f"-{label}-x" in cell.name), None)


def _of_many_rows(op: Op, cell: Cell, label: str, chance: random.Random, gpu: bool) -> Cell:
    """On a GPU at the width and dtype of the fixed cell, for which kernels are compiled already; heads there are of any dtype, too."""
    columns, dtype = cell.inputs[0].shape[-1], cell.outputs[0].dtype
    if label == "head80" or not gpu:
        dtype = chance.choice(DTYPES)
    if label != "head80" and not gpu:
        columns = short(op, chance)
    rows = between(chance, GPU_FEWEST, min(GPU_ROWS, GPU_ELEMENTS // columns)) if gpu else chance.randint(*CPU_ROWS)
    draft = Draft(rows, columns, dtype, cell.values, role="capability", layout=OF_MANY_ROWS[label], label=label)
    return cell_of(op, draft)


def _of_long_rows(op: Op, cell: Cell, label: str, chance: random.Random, gpu: bool) -> Cell:
    rows = cell.inputs[0].shape[0] if gpu or cell.values != "normal" else 2
    columns = chance.randint(*(GPU_LONG_ROWS if gpu else LONG_ROWS))
    dtype: Dtype = "float16" if gpu else chance.choice(DTYPES)
    return cell_of(op, Draft(rows, columns, dtype, cell.values, role="capability", layout=OF_LONG_ROWS[label], label=label))


def _with_a_layout(cell: Cell, chance: random.Random) -> Cell:
    """With a gap after rows and an offset where it has any, the same for all operands. They are odd, but rows that are aligned with
    vectors stay so."""
    gap, moved, more = chance.choice(ODD_GAPS), chance.choice(ODD_GAPS), chance.choice(MORE_ALIGNED)
    aligned = "-padded-aligned-" in cell.name

    def relaid(spec: TensorSpec) -> TensorSpec:
        offset = moved if spec.offset else 0
        if len(spec.shape) == 2 and spec.strides[0] > spec.shape[1] > 0:
            return replace(spec, strides=(aligned_stride(spec.shape[1], more) if aligned else spec.shape[1] + gap, 1), offset=offset)
        return replace(spec, offset=offset)

    return replace(cell, inputs=tuple(map(relaid, cell.inputs)))
