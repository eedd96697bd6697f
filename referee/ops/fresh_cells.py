"""Test cells drawn from the verdict's secret seed: shapes, dtypes, values and magnitudes.

They lie within the operation's contract, so that a kernel fitted to the published shapes gains
nothing. A user's task has none. Shapes come from a hash of the seed, because the candidate's Python
sees them.

On the CPU, some cells have a purpose: a sorted row of several blocks, and normal values in
bfloat16. Others have dozens or hundreds of short rows, or a thousand. Longer rows are in
`fresh_widths.py`. In two cells almost all rows look usual, which catches kernels that sample values.

Half of all widths are powers of two or odd multiples of one, for which kernels have special code.
Tiles of rows leave a remainder there, except for one in four on a GPU. On a GPU, more cells have
many rows: an odd number, and a multiple of the multiprocessors. One has hundreds of tiles in
incomplete groups. Another has the same number of long rows, and so almost the most elements.
"""

from __future__ import annotations

import hashlib
import math
import random

from referee.ops.catalogue import base_name
from referee.ops.cell_spec import CellSpec
from referee.ops.cells import cells_of
from referee.ops.signatures import KINDS, ROPE_KINDS, signature
from referee.ops.spec import Cell, Dtype, Op

RECIPES = (
    "normal",
    "mixed",
    "shifted",
    "sorted",
    "one_hot",
    "cancellation",
    "constant",
    "outlier",
    "rare",
)
DTYPES: tuple[Dtype, ...] = ("float32", "float16", "bfloat16")
# Dtypes of the cells with the most elements; float32 would need twice the memory.
HALVES: tuple[Dtype, ...] = ("float16", "bfloat16")
# Operations that add one to their weights.
ADD_ONE = frozenset({"rmsnorm_gemma"})
HEADS = (64, 128, 256)
CPU_COLUMNS, GPU_COLUMNS = 2500, 9000
CPU_ROWS, GPU_ROWS = 6, 8192
GPU_ELEMENTS = 1 << 22
# The block of a fixed cell, whose kernels are compiled already, for kernels of one block for each
# row.
GPU_LONGEST: dict[Dtype, int] = {"float16": 16384, "bfloat16": 8192, "float32": 8192}
CPU_TILED_ROWS, CPU_MANY_ROWS, CPU_SHORT = (41, 1023), (1025, 1500), (12, 40)
TILED_ROWS_OF_A_GPU = (41, 8192)
# Maximum number of short rows, which take no more memory than the timed cell.
GPU_MOST_ROWS = 1 << 18
# The timed columns, and the numbers of rows in `_of_timed_blocks`.
TIMED, ROPE_TIMED, THOUSANDS, BEYOND_AN_AXIS, OF_HEADS = (
    4096,
    128,
    (2049, 8191),
    (65_601, 80_000),
    (530_000, 600_000),
)
# CUDA's limit for the second and third grid dimension.
MOST_ROWS = 65535
H100_MULTIPROCESSORS = 132
# Widths and dtypes of fixed cells, whose kernels are compiled already.
NARROW: tuple[tuple[int, Dtype], ...] = ((127, "float16"), (128, "float32"))
ROPE_NARROW: tuple[tuple[int, Dtype], ...] = ((128, "bfloat16"), (64, "float16"))
# Row counts for even columns; no tile of eight rows or more divides them.
TILED_ROWS = tuple(rows for rows in range(9, 40) if rows % 8)
# Rows of the largest usual tile, and the share of cells that whole tiles cover.
TILE_ROWS, WHOLE_TILES = 64, 0.25


def fresh_cells(
    op: Op, seed: int, *, gpu: bool, multiprocessors: int = H100_MULTIPROCESSORS
) -> tuple[Cell, ...]:
    """The cells of this seed, for a GPU with this number of multiprocessors.

    The same seed gives the same cells.
    """
    if op.kind not in KINDS:
        return ()
    chance = random.Random(hashlib.sha256(f"{seed}\0cells".encode()).digest())
    specs = [_anything(op, chance, gpu)]
    if gpu:
        specs.append(_of_whole_tiles(op, chance))
        specs += _of_many_rows(op, chance, multiprocessors) if op.regime != "wide" else ()
        specs += _of_timed_blocks(op, chance)
    else:
        columns = _columns(op, chance, 2049, 6000)
        specs.append(CellSpec(2, columns, "float32", "sorted", label="fresh-sorted"))
        columns = _columns(op, chance, 600, 3000)
        rows = _rows(chance, columns, 3)
        specs.append(CellSpec(rows, columns, "bfloat16", "normal", label="fresh-normal"))
        specs += _many(op, chance)
    specs += _nearly_usual(op, chance, gpu)
    return cells_of(op, specs)


def _nearly_usual(op: Op, chance: random.Random, gpu: bool) -> list[CellSpec]:
    """A cell of long rows and a cell of more short rows, almost all of them usual."""
    few, dtype = chance.randint(9, 24), chance.choice(DTYPES)
    if op.kind in ROPE_KINDS:
        long = chance.choice(HEADS)
        more = ROPE_NARROW if gpu else tuple((columns, dtype) for columns in HEADS[:2])
    else:
        # On a GPU, the block of fixed cells with an odd width.
        long = 2 * chance.randint(2049, 4095) + 1 if gpu else between(chance, 2049, 6000)
        more = NARROW if gpu else ((short(op, chance), chance.choice(DTYPES)),)
    rows = between(chance, *(TILED_ROWS_OF_A_GPU if gpu else CPU_TILED_ROWS))
    columns, other = chance.choice(more)
    values = "rare_none" if base_name(op) in ADD_ONE else "rare"
    return [
        CellSpec(few, long, dtype, values, label="fresh-usual"),
        CellSpec(rows, columns, other, values, label="fresh-usual"),
    ]


def _many(op: Op, chance: random.Random) -> list[CellSpec]:
    """Many rows, as far as the interpreter allows, because kernels may treat them differently."""
    rows, columns = between(chance, *CPU_TILED_ROWS), short(op, chance)
    dtype, values = chance.choice(DTYPES), chance.choice(RECIPES)
    made = [CellSpec(rows, columns, dtype, values, label="fresh-tiled")]
    if op.regime != "wide":
        rows, columns = chance.randint(*CPU_MANY_ROWS), short(op, chance)
        made.append(CellSpec(rows, columns, chance.choice(DTYPES), "mixed", label="fresh-rows"))
    return made


def between(chance: random.Random, low: int, high: int) -> int:
    """A number in [low, high], with every order of magnitude equally likely."""
    return round(math.exp2(chance.uniform(math.log2(low), math.log2(high))))


def short(op: Op, chance: random.Random) -> int:
    """A width at which the interpreter can run many rows."""
    return min(HEADS) if op.kind in ROPE_KINDS else between(chance, *CPU_SHORT)


def _of_many_rows(op: Op, chance: random.Random, multiprocessors: int) -> list[CellSpec]:
    narrow = ROPE_NARROW if op.kind in ROPE_KINDS else NARROW
    odd = between(chance, GPU_ROWS, GPU_MOST_ROWS) | 1
    low, high = (math.log2(rows / multiprocessors) for rows in (GPU_ROWS // 4, MOST_ROWS))
    times = round(math.exp2(chance.uniform(low, high)))
    # An odd multiple, because Triton specialises kernels for multiples of 16.
    even = multiprocessors * max(1, times - (times + 1) % 2)
    return [
        of_any_values(op, chance, rows, columns, dtype, label="fresh-rows")
        for rows, (columns, dtype) in zip((odd, even), narrow, strict=True)
    ]


def _of_timed_blocks(op: Op, chance: random.Random) -> list[CellSpec]:
    """Thousands of long rows, and more rows than a grid dimension allows.

    Kernels of one block for each row have the timed cell's block here.
    """
    if op.kind in ROPE_KINDS:
        rows, dtype = chance.randint(*OF_HEADS), chance.choice(HALVES)
        return [CellSpec(rows, ROPE_TIMED, dtype, "normal", label="fresh-elements")]
    if op.regime == "wide":
        return []
    low = TIMED // 4 if op.regime == "short" else TIMED // 2
    tiled = odd_multiple(chance, chance.choice((128, 256, 512)), low + 1, 2 * low)
    narrower = odd_multiple(chance, 16, low + 1, low * 5 // 4)
    rows, dtype = chance.randint(*THOUSANDS), chance.choice(DTYPES)
    groups = CellSpec(rows, tiled, dtype, "mixed", label="fresh-groups")
    rows, dtype = chance.randint(*BEYOND_AN_AXIS), chance.choice(HALVES)
    return [groups, CellSpec(rows, narrower, dtype, "normal", label="fresh-elements")]


def _anything(op: Op, chance: random.Random, gpu: bool) -> CellSpec:
    columns = _columns(op, chance, 2, GPU_COLUMNS if gpu else CPU_COLUMNS)
    rows = _any_rows(chance, columns) if gpu else _rows(chance, columns, CPU_ROWS)
    return of_any_values(op, chance, rows, columns, chance.choice(DTYPES))


def _of_whole_tiles(op: Op, chance: random.Random) -> CellSpec:
    dtype = chance.choice(DTYPES)
    if op.kind in ROPE_KINDS:
        columns = chance.choice(HEADS)
    else:
        columns = any_odd_multiple(chance, 2, GPU_LONGEST[dtype])
    return of_any_values(op, chance, _any_rows(chance, columns), columns, dtype)


def of_any_values(
    op: Op, chance: random.Random, rows: int, columns: int, dtype: Dtype, *, label: str = "fresh"
) -> CellSpec:
    """A spec with drawn values and magnitudes, for all operands or some."""
    values, scaled = chance.choice(RECIPES), _some_operands(op, chance)
    return CellSpec(
        rows, columns, dtype, values, _magnitude(chance), scaled=scaled, label=f"{label}-{values}"
    )


def _some_operands(op: Op, chance: random.Random) -> tuple[str, ...]:
    """Random operands to scale, because scaling one alone catches other kernels than ()."""
    return tuple(name for name in signature(op) if chance.random() < 0.5)


def _magnitude(chance: random.Random) -> float:
    return float(2.0 ** chance.randint(-6, 6))


def _columns(op: Op, chance: random.Random, low: int, high: int) -> int:
    if op.kind in ROPE_KINDS:
        return chance.choice(HEADS)
    if chance.random() < 0.5:
        return chance.randint(low, high)
    powers = [2**power for power in range(4, high.bit_length()) if 2**power >= low]
    return chance.choice((chance.choice(powers), any_odd_multiple(chance, low, high)))


def odd_multiple(chance: random.Random, of: int, low: int, high: int) -> int:
    """An odd multiple of `of`, at least three times, from `low` to `high`."""
    return of * chance.choice(range(max(3, -(-low // of)) | 1, high // of + 1, 2))


def any_odd_multiple(chance: random.Random, low: int, high: int) -> int:
    """An odd multiple of a power of two, with each power from 16 on equally likely."""
    return odd_multiple(chance, 1 << chance.randint(4, (high // 3).bit_length() - 1), low, high)


def _any_rows(chance: random.Random, columns: int) -> int:
    """A number of rows, with few rows and thousands equally likely.

    So no row count between those of the fixed cells is safe to get wrong.
    """
    rows = between(chance, 1, max(2, min(GPU_ROWS, GPU_ELEMENTS // columns)))
    if columns % 16:
        return rows
    if chance.random() < WHOLE_TILES:
        return -(-rows // TILE_ROWS) * TILE_ROWS
    return rows + 1 if rows > 8 and rows % 8 == 0 else max(rows, TILED_ROWS[0])


def _rows(chance: random.Random, columns: int, most: int) -> int:
    return chance.randint(1, most) if columns % 16 else chance.choice(TILED_ROWS)
