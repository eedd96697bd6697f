"""Cells that nobody could know beforehand: shapes, dtypes, values and magnitudes drawn from the verdict's secret seed.

They stand beside the op's fixed cells and within its contract, so that a kernel fitted to the published shapes gains nothing. On
the CPU others have a purpose: a row of several blocks that keeps growing, plain values in bfloat16, rows by the dozen or the hundred
and by the thousand, which are short because the interpreter runs one program after the other, and rows longer than usual blocks.
In two cells all rows are nearly usual ones, with exceptions that a kernel would miss that looks at some values before it reads the rest.
Half of all widths are such as kernels have a way of their own for, powers of two and odd multiples of one; tiles of rows leave a rest
there, or one time in four on a GPU none. There one cell, but of rotations, always has such a multiple, which tiles of so many columns
divide, and pairs of them do not.
On a GPU two more have many rows: an odd number, and one that programs of which every multiprocessor runs one share evenly; one has tiles
by the hundred in groups that are not whole, and one as many rows that are long, so that it has more elements than all but the largest.
A user's task has none. Shapes come from a hash of the seed, because the candidate's Python sees them.
"""

from __future__ import annotations

import hashlib
import math
import random

from referee.ops.catalogue import base_name
from referee.ops.cells import cell_of
from referee.ops.plans import Draft
from referee.ops.signatures import KINDS, ROPE_KINDS, signature
from referee.ops.spec import Cell, Dtype, Op

RECIPES = ("normal", "mixed", "shifted", "sorted", "one_hot", "cancellation", "constant", "outlier", "rare")
DTYPES: tuple[Dtype, ...] = ("float32", "float16", "bfloat16")
# To their weights.
ADD_ONE = frozenset({"rmsnorm_gemma"})
HEADS = (64, 128, 256)
CPU_COLUMNS, GPU_COLUMNS = 2500, 9000
CPU_ROWS, GPU_ROWS = 6, 8192
GPU_ELEMENTS = 1 << 22
# Where whole rows are one block it is the block of a fixed cell, for which kernels are compiled already.
GPU_LONGEST: dict[Dtype, int] = {"float16": 16384, "bfloat16": 8192, "float32": 8192}
CPU_TILED_ROWS, CPU_MANY_ROWS, CPU_SHORT, CPU_LONG, CPU_LONGER = (41, 1023), (1025, 1500), (12, 40), (6001, 40000), (16385, 80000)
TILED_ROWS_OF_A_GPU = (41, 8192)
# So many short rows need no more memory than the timed cell.
GPU_MOST_ROWS = 1 << 18
# What `_of_timed_blocks` has: of the timed cell the columns, and numbers of rows.
TIMED, ROPE_TIMED, THOUSANDS, BEYOND_AN_AXIS, OF_HEADS = 4096, 128, (2049, 8191), (65_601, 80_000), (530_000, 600_000)
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
        drafts += _of_timed_blocks(op, chance)
    else:
        drafts.append(Draft(2, _columns(op, chance, 2049, 6000), "float32", "sorted", label="fresh-sorted"))
        columns = _columns(op, chance, 600, 3000)
        drafts.append(Draft(_rows(chance, columns, 3), columns, "bfloat16", "normal", label="fresh-normal"))
        drafts += _many_or_long(op, chance)
    drafts += _nearly_usual(op, chance, gpu)
    return tuple({cell.name: cell for cell in (cell_of(op, draft) for draft in drafts)}.values())


def _nearly_usual(op: Op, chance: random.Random, gpu: bool) -> list[Draft]:
    """Long rows, and more of them that are short."""
    few, dtype = chance.randint(9, 24), chance.choice(DTYPES)
    if op.kind in ROPE_KINDS:
        long, more = chance.choice(HEADS), (ROPE_NARROW if gpu else tuple((columns, dtype) for columns in HEADS[:2]))
    else:
        # The block of fixed cells, and no multiple of anything, on a GPU.
        long = 2 * chance.randint(2049, 4095) + 1 if gpu else between(chance, 2049, 6000)
        more = NARROW if gpu else ((short(op, chance), chance.choice(DTYPES)),)
    rows = between(chance, *(TILED_ROWS_OF_A_GPU if gpu else CPU_TILED_ROWS))
    columns, other = chance.choice(more)
    values = "rare_none" if base_name(op) in ADD_ONE else "rare"
    return [Draft(few, long, dtype, values, label="fresh-usual"), Draft(rows, columns, other, values, label="fresh-usual")]


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
    odd = between(chance, GPU_ROWS, GPU_MOST_ROWS) | 1
    times = round(math.exp2(chance.uniform(math.log2(GPU_ROWS // 4 / multiprocessors), math.log2(MOST_ROWS / multiprocessors))))
    # An odd multiple: most counts of multiprocessors times 16 are numbers that Triton compiles a kernel of its own for.
    even = multiprocessors * max(1, times - (times + 1) % 2)
    made = []
    for rows, (columns, dtype) in zip((odd, even), narrow, strict=True):
        values, scaled = chance.choice(RECIPES), _some_operands(op, chance)
        made.append(Draft(rows, columns, dtype, values, _magnitude(chance), scaled=scaled, label=f"fresh-rows-{values}"))
    return made


def _of_timed_blocks(op: Op, chance: random.Random) -> list[Draft]:
    """Thousands of rows, and more than an axis of a grid has, both long: of widths whose block is the timed one's where rows are one."""
    if op.kind in ROPE_KINDS:
        return [Draft(chance.randint(*OF_HEADS), ROPE_TIMED, "float16", "normal", label="fresh-elements")]
    if op.regime == "wide":
        return []
    low = TIMED // 4 if op.regime == "short" else TIMED // 2
    tiled = odd_multiple(chance, chance.choice((128, 256, 512)), low + 1, 2 * low)
    narrower = odd_multiple(chance, 16, low + 1, low * 5 // 4)
    return [
        Draft(chance.randint(*THOUSANDS), tiled, "float16", "mixed", label="fresh-groups"),
        Draft(chance.randint(*BEYOND_AN_AXIS), narrower, "float16", "normal", label="fresh-elements"),
    ]


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


def odd_multiple(chance: random.Random, of: int, low: int, high: int) -> int:
    """Three times `of` or more, from `low` to `high`."""
    return of * chance.choice(range(max(3, -(-low // of)) | 1, high // of + 1, 2))


def _odd_multiple(chance: random.Random, low: int, high: int) -> int:
    """Three, five or more times a power of two, each power from 16 on as often as any other: whole tiles of its size, and one over."""
    return odd_multiple(chance, 1 << chance.randint(4, (high // 3).bit_length() - 1), low, high)


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
