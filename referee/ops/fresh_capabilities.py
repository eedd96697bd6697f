"""Capability cells with properties drawn from the secret seed: layouts, rows and widths.

The seed decides the gap between rows and the offset of views. A kernel may have some capabilities
at few rows only, so they get one more cell of many rows. These are padded rows, NaN and infinities,
and head sizes that are not powers of two. Others get one more cell of long rows.

Limits: cells of offsets keep the rows of the fixed cells. Long rows of a replay are float16.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import replace

from referee.ops.cell_spec import CellSpec, Layout
from referee.ops.cells import aligned_stride, cell_of
from referee.ops.fresh_cells import DTYPES, GPU_ELEMENTS, GPU_ROWS, between, short
from referee.ops.signatures import KINDS, ROPE_KINDS
from referee.ops.spec import Cell, Dtype, Op, TensorSpec

ODD_GAPS, MORE_ALIGNED = range(1, 128, 2), range(64)
# More rows than the usual threshold of kernels for many rows, and few enough for the interpreter.
CPU_ROWS = (257, 320)
# Between the row counts of the fixed cells.
GPU_FEWEST = 64
# Layouts of the capabilities by the label in a cell's name.
OF_MANY_ROWS: dict[str, Layout] = {
    "padded": "padded-offset", "padded-aligned": "aligned", "nonfinite": "contiguous", "head80": "contiguous"
}  # fmt: skip

LONG_ROWS = (12289, 33001)
"""Three quarters of these are longer than the largest usual block."""
GPU_LONG_ROWS = (12289, 16384)
"""Within the block of a fixed cell, for kernels with one block for each row."""
OF_LONG_ROWS: dict[str, Layout] = {
    "padded": "padded-offset",
    "nonfinite": "contiguous",
    "nonfinite-masked": "contiguous",
}


def fresh_capabilities(op: Op, fixed: Sequence[Cell], seed: int, *, gpu: bool) -> list[Cell]:
    """The fixed cells with layouts of this seed, and the cells of many and long rows.

    The same seed gives the same cells. A user's cells stay as they are.
    """
    if op.kind not in KINDS:
        return list(fixed)
    chance = random.Random(hashlib.sha256(f"{seed}\0layouts".encode()).digest())
    more = [
        _of_many_rows(op, cell, label, chance, gpu)
        for label in OF_MANY_ROWS
        if (cell := _first(fixed, label))
    ]
    if op.kind not in ROPE_KINDS and (op.regime != "short" or not gpu):
        more += [
            _of_long_rows(op, cell, label, chance, gpu)
            for label in OF_LONG_ROWS
            if (cell := _first(fixed, label))
        ]
    named = {cell.name: cell for cell in (*fixed, *more)}
    return [_with_a_layout(cell, chance) for cell in named.values()]


def _first(cells: Sequence[Cell], label: str) -> Cell | None:
    return next((cell for cell in cells if f"-{label}-x" in cell.name), None)


def _of_many_rows(op: Op, cell: Cell, label: str, chance: random.Random, gpu: bool) -> Cell:
    """A cell of many rows. A replay keeps width and dtype, for which kernels are compiled."""
    columns, dtype = cell.inputs[0].shape[-1], cell.outputs[0].dtype
    if label == "head80" or not gpu:
        dtype = chance.choice(DTYPES)
    if label != "head80" and not gpu:
        columns = short(op, chance)
    most = min(GPU_ROWS, GPU_ELEMENTS // columns)
    rows = between(chance, GPU_FEWEST, most) if gpu else chance.randint(*CPU_ROWS)
    return _cell(op, cell, label, (rows, columns, dtype), OF_MANY_ROWS[label])


def _of_long_rows(op: Op, cell: Cell, label: str, chance: random.Random, gpu: bool) -> Cell:
    rows = cell.inputs[0].shape[0] if gpu or cell.values != "normal" else 2
    columns = chance.randint(*(GPU_LONG_ROWS if gpu else LONG_ROWS))
    dtype: Dtype = "float16" if gpu else chance.choice(DTYPES)
    return _cell(op, cell, label, (rows, columns, dtype), OF_LONG_ROWS[label])


def _cell(op: Op, like: Cell, label: str, shape: tuple[int, int, Dtype], layout: Layout) -> Cell:
    return cell_of(op, CellSpec(*shape, like.values, role="capability", layout=layout, label=label))


def _with_a_layout(cell: Cell, chance: random.Random) -> Cell:
    """The cell with drawn odd gaps and offsets, equal for all operands; aligned rows stay so."""
    if "-halves-" in cell.name:
        return cell
    gap, moved, more = chance.choice(ODD_GAPS), chance.choice(ODD_GAPS), chance.choice(MORE_ALIGNED)
    aligned = "-padded-aligned-" in cell.name

    def relaid(spec: TensorSpec) -> TensorSpec:
        offset = moved if spec.offset else 0
        if len(spec.shape) == 2 and spec.strides[0] > spec.shape[1] > 0:
            row = aligned_stride(spec.shape[1], more) if aligned else spec.shape[1] + gap
            return replace(spec, strides=(row, 1), offset=offset)
        return replace(spec, offset=offset)

    return replace(cell, inputs=tuple(map(relaid, cell.inputs)))
