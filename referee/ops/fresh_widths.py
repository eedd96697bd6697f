"""Drawn cells of every order of width, because kernels often choose their code by width.

Kernels choose blocks by the next power of two, by divisors of a row, and by tiles of rows. So each
power of two and a width below it runs in two dtypes that change from power to power. One of the two
has mixed rows. Long rows cover every power of two as largest divisor; next to a replay, one length
for each. Row counts are covered in the same way.

Some cells have hundreds of rows of medium width, with whole tiles and with remainders. For
operations that subtract the row's largest value, some long rows have one dominant value and some
keep growing.

`fresh_long` draws cells of several long rows, and of rows as long as vocabularies. Partial results
of three or more parts of a split row may collide where two do not. Operations on logits also get a
row of the widest current vocabulary, and two float32 rows of half that length. In half of all
verdicts they get another vocabulary instead of other long rows.

Limits: the seed decides which dtype meets which values, and which powers divide shorter rows. The
interpreter takes no longer rows. A replay has such rows only for a kernel that is to be saved,
because compiling a kernel with such a block takes long.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace

from referee.ops.catalogue import base_name
from referee.ops.cell_spec import CellSpec
from referee.ops.cells import MIXED_SCALE, cell_of, cells_of
from referee.ops.fresh_cells import (
    DTYPES,
    HEADS,
    any_odd_multiple,
    between,
    odd_multiple,
    of_any_values,
    short,
)
from referee.ops.op_cells import FROM_THE_LARGEST
from referee.ops.signatures import KINDS, ROPE_KINDS
from referee.ops.spec import Cell, Dtype, Op

POWERS = range(1, 15)
"""Exponents: each width lies above this power of two and at most at the next one."""
ROWS, ELEMENTS = 8, 1 << 15
"""Maximum numbers of rows and elements. Seven mixed rows have every recipe."""
DIVIDED, ALL_DIVISORS, LEAST_DIVISOR = range(9, 15), range(12, 15), 6
"""Exponents of widths with a power of two as divisor; exponents at which every divisor occurs;
least exponent of a divisor.
"""
ROW_DIVISORS, MANY = range(7), (16, 300)
TILE_ROWS, TILE_COLUMNS, TILES, MOST_TILES = 128, 128, (1, 1, 1, 2), 8
MIDDLE_ROWS, MIDDLE_COLUMNS, MIDDLE_ELEMENTS = (65, 520), (256, 1500), 160_000
HEAD_ROWS = (257, 600)
DOZENS, WIDE_COLUMNS, WIDE_DIVISORS = (129, 144), (1025, 1800), (6, 7, 8, 9)
LONG = (8193, 32768)
SPIKES = (1.3125, 1.625), (2.125,)
"""Heights of spikes, times 8, at which float32 still shows thousands of left out values."""


def fresh_widths(op: Op, seed: int, *, gpu: bool) -> tuple[Cell, ...]:
    """A few rows of each width, and a few columns for many row counts.

    There are fewer widths next to a replay. The same seed gives the same cells. None for a user's
    task.
    """
    if op.kind not in KINDS:
        return ()
    chance = random.Random(hashlib.sha256(f"{seed}\0widths".encode()).digest())
    turn = chance.randrange(len(DTYPES))
    specs = _of_rows(op, chance, turn)
    if op.kind not in ROPE_KINDS:
        for power in POWERS:
            specs += _of_width(op, chance, power, power + turn)
        specs += _divided(op, chance, gpu)
    if base_name(op) in FROM_THE_LARGEST:
        for spikes in SPIKES:
            columns, height = between(chance, *LONG), chance.choice(spikes)
            specs.append(CellSpec(2, columns, "float32", "one_hot", height, label="fresh-spike"))
        columns, label = between(chance, *LONG), "fresh-growing"
        specs.append(CellSpec(1, columns, "float32", "sorted", MIXED_SCALE, label=label))
    return cells_of(op, specs)


def fresh_middle(op: Op, seed: int) -> tuple[Cell, ...]:
    """Cells of hundreds of rows of medium width: whole tiles, odd row counts, wide rows."""
    if op.kind not in KINDS:
        return ()
    chance = random.Random(hashlib.sha256(f"{seed}\0middle".encode()).digest())
    rope = op.kind in ROPE_KINDS
    whole = chance.choice(HEADS[1:]) if rope else TILE_COLUMNS * between(chance, 2, MOST_TILES)
    columns = chance.choice(HEADS[1:]) if rope else between(chance, *MIDDLE_COLUMNS)
    rows = between(chance, MIDDLE_ROWS[0], min(MIDDLE_ROWS[1], MIDDLE_ELEMENTS // columns)) | 1
    tiled, dtype = TILE_ROWS * chance.choice(TILES), chance.choice(DTYPES)
    specs = [CellSpec(tiled, whole, dtype, "mixed", _hard(chance), label="fresh-tiles")]

    def middle(rows: int, columns: int) -> None:
        dtype = chance.choice(DTYPES)
        specs.append(of_any_values(op, chance, rows, columns, dtype, label="fresh-middle"))

    middle(rows, columns)
    if rope:
        middle(chance.randint(*HEAD_ROWS) | 1, HEADS[-1])
    else:
        wide = odd_multiple(chance, 1 << chance.choice(WIDE_DIVISORS), *WIDE_COLUMNS)
        middle(chance.randint(*DOZENS) | 1, wide)
    return cells_of(op, specs)


def _of_width(op: Op, chance: random.Random, power: int, turn: int) -> list[CellSpec]:
    """A cell at the power and one below it. Three successive powers cover all dtypes at both."""
    low, high = 2**power, 2 ** (power + 1)
    shapes = [
        (max(1, min(ROWS, ELEMENTS // columns)), columns, DTYPES[(turn + step) % len(DTYPES)])
        for step, columns in enumerate((high, chance.randint(low + 1, high - 1)))
    ]
    chance.shuffle(shapes)
    one, other = (CellSpec(*shape, "mixed", _hard(chance), label="fresh-width") for shape in shapes)
    if chance.random() < 0.5:
        rows, columns, dtype = shapes[1]
        rows = chance.randint(1, rows)
        other = of_any_values(op, chance, rows, columns, dtype, label="fresh-width")
    return [one, other]


def _divided(op: Op, chance: random.Random, gpu: bool) -> list[CellSpec]:
    """Rows whose width has a power of two as divisor: one of each order, and every long one."""
    short = [
        (power, chance.choice(range(LEAST_DIVISOR, power)))
        for power in DIVIDED
        if power < min(ALL_DIVISORS)
    ]
    long = [
        [(power, divisor) for power in ALL_DIVISORS if divisor < power]
        for divisor in range(LEAST_DIVISOR, max(ALL_DIVISORS))
    ]
    chosen = (pair for pairs in long for pair in ([chance.choice(pairs)] if gpu else pairs))
    made = []
    for power, divisor in (*short, *chosen):
        columns = odd_multiple(chance, 1 << divisor, 2**power, 2 ** (power + 1))
        rows, dtype = chance.choice((1, 1, 2)), chance.choice(DTYPES)
        made.append(of_any_values(op, chance, rows, columns, dtype, label="fresh-divided"))
    return made


def _of_rows(op: Op, chance: random.Random, turn: int) -> list[CellSpec]:
    """Dozens of rows with a power of two as largest divisor; small tiles divide some widths."""
    made = []
    for power in ROW_DIVISORS:
        rows = odd_multiple(chance, 1 << power, 9, max(3 << power, between(chance, *MANY)))
        columns = (
            short(op, chance)
            if op.kind in ROPE_KINDS or chance.random() < 0.5
            else 16 * chance.choice((1, 2, 3, 4, 8))
        )
        dtype = DTYPES[(turn + power) % len(DTYPES)]
        made.append(of_any_values(op, chance, rows, columns, dtype, label="fresh-row-tiles"))
    return made


def _hard(chance: random.Random) -> float:
    """Mixed rows as they are, or so large that they need a guard against overflow."""
    return chance.choice((1.0, MIXED_SCALE))


VOCABULARIES = (50_257, 128_256, 151_936, 262_144)
"""Vocabulary sizes of GPT-2, Llama 3, Qwen 2.5 and Gemma 3."""
LONG_ROWS = 3
WIDE = "wide"
FULL: Dtype = "float32"
_WIDE = (
    CellSpec(37, 16_384, "bfloat16", "mixed", role="capability", label=WIDE),
    CellSpec(LONG_ROWS, 33_001, "float32", "mixed", role="capability", label=WIDE),
)
VERY_LONG, VERY_LONG_WIDE = (17_001, 40_000), (17_001, 80_000)


def fresh_long(op: Op, seed: int) -> tuple[Cell, ...]:
    """The cells of this seed; the same seed gives the same cells. None for a user's task."""
    if op.kind not in KINDS or op.kind in ROPE_KINDS:
        return ()
    chance = random.Random(hashlib.sha256(f"{seed}\0long".encode()).digest())
    length = VERY_LONG_WIDE if op.regime == "wide" else VERY_LONG
    columns = chance.choice((between(chance, *length), any_odd_multiple(chance, *length)))
    long = CellSpec(LONG_ROWS, columns, _dtype(chance), "normal", 8.0, label="fresh-long")
    specs = [long]
    if base_name(op) in FROM_THE_LARGEST:
        narrowest, *others, widest = VOCABULARIES
        specs.append(CellSpec(1, widest, _dtype(chance), "normal", 4.0, label="vocabulary"))
        # Half dtypes hide a sum of too few bits, and so may the rounding of a single row.
        specs.append(CellSpec(2, widest // 2, FULL, "normal", 4.0, label="fresh-long"))
        narrower = [(LONG_ROWS, narrowest), *((1, width) for width in others)]
        # Long rows and other vocabularies are equally likely.
        if chance.random() < 0.5:
            rows, columns = chance.choice(narrower)
            specs[0] = replace(long, rows=rows, columns=columns, scale=4.0)
    return cells_of(op, specs)


def wide_cells(op: Op) -> tuple[Cell, ...]:
    """Fixed cells of long rows, by which a GPU decides how long a saved kernel's rows may be."""
    if op.kind not in KINDS or op.kind in ROPE_KINDS or op.regime == "wide":
        return ()
    specs = list(_WIDE)
    if base_name(op) in FROM_THE_LARGEST:
        dtypes: tuple[Dtype, ...] = ("float16", "bfloat16")
        specs += [
            CellSpec(LONG_ROWS, width, dtypes[at % 2], "normal", 4.0, role="capability", label=WIDE)
            for at, width in enumerate(VOCABULARIES)
        ]
    return tuple(cell_of(op, one) for one in specs)


def _dtype(chance: random.Random) -> Dtype:
    return chance.choice(DTYPES)
