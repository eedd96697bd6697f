"""Cells that nobody could know beforehand: shapes, dtypes, values and magnitudes drawn from the verdict's secret seed.

They stand beside the op's fixed cells and within its contract, so that a kernel fitted to the published shapes gains nothing. On
the CPU others have a purpose: a row of several blocks that keeps growing, plain values in bfloat16, rows by the dozen or the hundred
and by the thousand, which are short because the interpreter runs one program after the other, and rows longer than usual blocks.
Half of all widths are such as kernels have a way of their own for, powers of two and odd multiples of one; tiles of rows leave a rest
there, or one time in four on a GPU none. There one cell, but of rotations, always has such a multiple, which tiles of so many columns
divide, and pairs of them do not.
On a GPU two more have many rows: an odd number, and one that programs of which every multiprocessor runs one share evenly.
A user's task has none. Shapes come from a hash of the seed, because the candidate's Python sees them.
"""

from __future__ import annotations

import hashlib
import math
import random

from referee.ops.cells import cell_of
from referee.ops.plans import Draft
from referee.ops.signatures import KINDS, ROPE_KINDS, signature
from referee.ops.spec import Cell, Dtype, Op

RECIPES = ("normal", "mixed", "shifted", "sorted", "one_hot", "cancellation", "constant", "outlier")
DTYPES: tuple[Dtype, ...] = ("float32", "float16", "bfloat16")
HEADS = (64, 128, 256)
CPU_COLUMNS, GPU_COLUMNS = 2500, 9000
CPU_ROWS, GPU_ROWS = 6, 8192
GPU_ELEMENTS = 1 << 22
# Where whole rows are one block it is the block of a fixed cell, for which kernels are compiled already.
GPU_LONGEST: dict[Dtype, int] = {"float16": 16384, "bfloat16": 8192, "float32": 8192}
CPU_TILED_ROWS, CPU_MANY_ROWS, CPU_SHORT, CPU_LONG, CPU_LONGER = (41, 1023), (1025, 1500), (12, 40), (6001, 40000), (16385, 80000)
# CUDA's limit for the second and third axis of a grid.
MOST_ROWS = 65535
H100_MULTIPROCESSORS = 132
# Widths and dtypes of fixed cells, for which kernels are compiled already.
NARROW: tuple[tuple[int, Dtype], ...] = ((127, "float16"), (128, "float32"))
ROPE_NARROW: tuple[tuple[int, Dtype], ...] = ((128, "bfloat16"), (64, "float16"))
# Where the columns are even: no tile of eight rows or more covers all of them.
TILED_ROWS = tuple(rows for rows in range(9, 40) if rows % 8)
# As many rows as any usual tile has, where none is left over, as often.
TILE_ROWS, WHOLE_TILES = 64, 0.25


def fresh_cells(op: Op, seed: int, *, gpu: bool, multiprocessors: int = H100_MULTIPROCESSORS) -> tuple[Cell, ...]:
    """The cells of this seed, for a GPU with so many multiprocessors: the same seed gives the same cells."""
    if op.kind not in KINDS:
        return ()
    chance = random.Random(hashlib.sha256(f"{seed}\0cells".encode()).digest())
    drafts = [_anything(op, chance, gpu)]
    if gpu:
        drafts.append(_of_whole_tiles(op, chance))
        drafts += _of_many_rows(op, chance, multiprocessors) if op.regime != "wide" else ()
    else:
        drafts.append(Draft(2, _columns(op, chance, 2049, 6000), "float32", "sorted", label="fresh-sorted"))
        columns = _columns(op, chance, 600, 3000)
        drafts.append(Draft(_rows(chance, columns, 3), columns, "bfloat16", "normal", label="fresh-normal"))
        drafts += _many_or_long(op, chance)
    return tuple({cell.name: cell for cell in (cell_of(op, draft) for draft in drafts)}.values())


def _many_or_long(op: Op, chance: random.Random) -> list[Draft]:
    """What a kernel may have another way for, as far as the interpreter gets: a number of rows, or a length of them."""
    rows, columns = between(chance, *CPU_TILED_ROWS), short(op, chance)
    made = [Draft(rows, columns, chance.choice(DTYPES), chance.choice(RECIPES), label="fresh-tiled")]
    if op.regime != "wide":
        made.append(Draft(chance.randint(*CPU_MANY_ROWS), short(op, chance), chance.choice(DTYPES), "mixed", label="fresh-rows"))
    if op.kind not in ROPE_KINDS:
        # Where rows are split, which only long ones are, parts of several rows may be mixed up.
        rows, length = (2, CPU_LONGER) if op.regime == "wide" else (chance.choice((1, 2)), CPU_LONG)
        columns = chance.choice((between(chance, *length), _odd_multiple(chance, *length)))
        made.append(Draft(rows, columns, chance.choice(DTYPES), "normal", 8.0, label="fresh-long"))
    return made


def between(chance: random.Random, low: int, high: int) -> int:
    """Each order of magnitude as often as any other."""
    return round(math.exp2(chance.uniform(math.log2(low), math.log2(high))))


def short(op: Op, chance: random.Random) -> int:
    """A width at which the interpreter gets through many rows."""
    return min(HEADS) if op.kind in ROPE_KINDS else between(chance, *CPU_SHORT)


def _of_many_rows(op: Op, chance: random.Random, multiprocessors: int) -> list[Draft]:
    narrow = ROPE_NARROW if op.kind in ROPE_KINDS else NARROW
    odd = 2 * chance.randint(GPU_ROWS // 2, MOST_ROWS // 2) + 1
    times = round(math.exp2(chance.uniform(math.log2(GPU_ROWS // 4 / multiprocessors), math.log2(MOST_ROWS / multiprocessors))))
    # An odd multiple: most counts of multiprocessors times 16 are numbers that Triton compiles a kernel of its own for.
    even = multiprocessors * max(1, times - (times + 1) % 2)
    made = []
    for rows, (columns, dtype) in zip((odd, even), narrow, strict=True):
        values, scaled = chance.choice(RECIPES), _some_operands(op, chance)
        made.append(Draft(rows, columns, dtype, values, _magnitude(chance), scaled=scaled, label=f"fresh-rows-{values}"))
    return made


def _anything(op: Op, chance: random.Random, gpu: bool) -> Draft:
    columns = _columns(op, chance, 2, GPU_COLUMNS if gpu else CPU_COLUMNS)
    rows = _any_rows(chance, columns) if gpu else _rows(chance, columns, CPU_ROWS)
    return of_any_values(op, chance, rows, columns, chance.choice(DTYPES))


def _of_whole_tiles(op: Op, chance: random.Random) -> Draft:
    dtype = chance.choice(DTYPES)
    columns = chance.choice(HEADS) if op.kind in ROPE_KINDS else _odd_multiple(chance, 2, GPU_LONGEST[dtype])
    return of_any_values(op, chance, _any_rows(chance, columns), columns, dtype)


def of_any_values(op: Op, chance: random.Random, rows: int, columns: int, dtype: Dtype, *, label: str = "fresh") -> Draft:
    """Values and magnitudes as a verdict draws them, of all operands or of some."""
    values, scaled = chance.choice(RECIPES), _some_operands(op, chance)
    return Draft(rows, columns, dtype, values, _magnitude(chance), scaled=scaled, label=f"{label}-{values}")


def _some_operands(op: Op, chance: random.Random) -> tuple[str, ...]:
    """Magnitudes of one operand alone tell other kernels apart than those of all together, which is what none chosen means."""
    return tuple(name for name in signature(op) if chance.random() < 0.5)


def _magnitude(chance: random.Random) -> float:
    return float(2.0 ** chance.randint(-6, 6))


def _columns(op: Op, chance: random.Random, low: int, high: int) -> int:
    if op.kind in ROPE_KINDS:
        return chance.choice(HEADS)
    if chance.random() < 0.5:
        return chance.randint(low, high)
    powers = [2**power for power in range(4, high.bit_length()) if 2**power >= low]
    return chance.choice((chance.choice(powers), _odd_multiple(chance, low, high)))


def _odd_multiple(chance: random.Random, low: int, high: int) -> int:
    """Three, five or more times a power of two, each power from 16 on as often as any other: whole tiles of its size, and one over."""
    power = 1 << chance.randint(4, (high // 3).bit_length() - 1)
    return power * chance.choice(range(max(3, -(-low // power)) | 1, high // power + 1, 2))


def _any_rows(chance: random.Random, columns: int) -> int:
    """A few rows as often as thousands, so that no number of rows between those of the fixed cells is safe to get wrong."""
    rows = round(math.exp2(chance.uniform(0.0, math.log2(max(2, min(GPU_ROWS, GPU_ELEMENTS // columns))))))
    if columns % 16:
        return rows
    if chance.random() < WHOLE_TILES:
        return -(-rows // TILE_ROWS) * TILE_ROWS
    return rows + 1 if rows > 8 and rows % 8 == 0 else max(rows, TILED_ROWS[0])


def _rows(chance: random.Random, columns: int, most: int) -> int:
    return chance.randint(1, most) if columns % 16 else chance.choice(TILED_ROWS)
