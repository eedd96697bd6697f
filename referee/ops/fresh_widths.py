"""Small cells of every order of width, in every verdict: what a kernel does only there is nowhere else.

Kernels choose blocks, and whole kernels, by the next power of two, by what divides a row and by tiles of rows. So of each power of two the
power itself and a width below it are run, one of them with rows of many kinds and the other as often with any values, in two dtypes that
change from power to power; and long rows of every power of two that may divide them and whose double does not, beside a replay of one
length for each. So are numbers of rows.
Some cells have rows by the hundred that are not short, with all that usual tiles divide, and with nothing. Where a row's largest is taken
away some long rows have one value far above the others, and some go on growing. Limits: which dtype meets which values is left to the seed,
and so is which of less long rows some power divides.
"""

from __future__ import annotations

import hashlib
import random

from referee.ops.catalogue import base_name
from referee.ops.cells import MIXED_SCALE, cell_of
from referee.ops.fresh_cells import DTYPES, HEADS, between, odd_multiple, of_any_values, short
from referee.ops.plans import FROM_THE_LARGEST, Draft
from referee.ops.signatures import KINDS, ROPE_KINDS
from referee.ops.spec import Cell, Op

POWERS = range(1, 15)
"""Widths lie above these powers of two and not above the next one."""
ROWS, ELEMENTS = 8, 1 << 15
"""At most so many rows, and elements: rows of mixed values are of every kind from seven on."""
DIVIDED, ALL_DIVISORS, LEAST_DIVISOR = range(9, 15), range(12, 15), 6
"""Rows that some power of two divides lie above these powers; above the last ones each power from the least on divides some."""
ROW_DIVISORS, MANY = range(7), (16, 300)
TILE_ROWS, TILE_COLUMNS, TILES, MOST_TILES = 128, 128, (1, 1, 1, 2), 8
MIDDLE_ROWS, MIDDLE_COLUMNS, MIDDLE_ELEMENTS = (65, 520), (256, 1500), 160_000
HEAD_ROWS = (257, 600)
DOZENS, WIDE_COLUMNS, WIDE_DIVISORS = (129, 144), (1025, 1800), (6, 7, 8, 9)
LONG = (8193, 32768)
SPIKES = (1.3125, 1.625), (2.125,)
"""Times 8: of thousands of equal values that lie so far below the largest, float32 still tells whether they were left out. One of each."""


def fresh_widths(op: Op, seed: int, *, gpu: bool) -> tuple[Cell, ...]:
    """A few rows of each width, and few columns of many numbers of rows; fewer widths beside a replay. The same seed gives the same cells.
    None for a user's task."""
    if op.kind not in KINDS:
        return ()
    chance = random.Random(hashlib.sha256(f"{seed}\0widths".encode()).digest())
    turn = chance.randrange(len(DTYPES))
    drafts = _of_rows(op, chance, turn)
    if op.kind not in ROPE_KINDS:
        for power in POWERS:
            drafts += _of_width(op, chance, power, power + turn)
        drafts += _divided(op, chance, gpu)
    if base_name(op) in FROM_THE_LARGEST:
        for spikes in SPIKES:
            drafts.append(Draft(2, between(chance, *LONG), "float32", "one_hot", chance.choice(spikes), label="fresh-spike"))
        drafts.append(Draft(1, between(chance, *LONG), "float32", "sorted", MIXED_SCALE, label="fresh-growing"))
    return tuple({cell.name: cell for cell in (cell_of(op, draft) for draft in drafts)}.values())


def fresh_middle(op: Op, seed: int) -> tuple[Cell, ...]:
    """Rows by the hundred that are not short: whole tiles, odd numbers of rows, and of those some that are whole tiles long."""
    if op.kind not in KINDS:
        return ()
    chance = random.Random(hashlib.sha256(f"{seed}\0middle".encode()).digest())
    rope = op.kind in ROPE_KINDS
    whole = chance.choice(HEADS[1:]) if rope else TILE_COLUMNS * between(chance, 2, MOST_TILES)
    columns = chance.choice(HEADS[1:]) if rope else between(chance, *MIDDLE_COLUMNS)
    rows = between(chance, MIDDLE_ROWS[0], min(MIDDLE_ROWS[1], MIDDLE_ELEMENTS // columns)) | 1
    drafts = [
        Draft(TILE_ROWS * chance.choice(TILES), whole, chance.choice(DTYPES), "mixed", _hard(chance), label="fresh-tiles"),
        of_any_values(op, chance, rows, columns, chance.choice(DTYPES), label="fresh-middle"),
    ]
    if rope:
        drafts.append(of_any_values(op, chance, chance.randint(*HEAD_ROWS) | 1, HEADS[-1], chance.choice(DTYPES), label="fresh-middle"))
    else:
        wide = odd_multiple(chance, 1 << chance.choice(WIDE_DIVISORS), *WIDE_COLUMNS)
        drafts.append(of_any_values(op, chance, chance.randint(*DOZENS) | 1, wide, chance.choice(DTYPES), label="fresh-middle"))
    return tuple({cell.name: cell for cell in (cell_of(op, draft) for draft in drafts)}.values())


def _of_width(op: Op, chance: random.Random, power: int, turn: int) -> list[Draft]:
    """Of each three powers in a row all dtypes come at the power, and all below it."""
    low, high = 2**power, 2 ** (power + 1)
    shapes = [
        (max(1, min(ROWS, ELEMENTS // columns)), columns, DTYPES[(turn + step) % len(DTYPES)])
        for step, columns in enumerate((high, chance.randint(low + 1, high - 1)))
    ]
    chance.shuffle(shapes)
    one, other = (Draft(*shape, "mixed", _hard(chance), label="fresh-width") for shape in shapes)
    if chance.random() < 0.5:
        rows, columns, dtype = shapes[1]
        other = of_any_values(op, chance, chance.randint(1, rows), columns, dtype, label="fresh-width")
    return [one, other]


def _divided(op: Op, chance: random.Random, gpu: bool) -> list[Draft]:
    """Rows between two powers of two that a smaller one divides: one of each order, and of the longest every divisor."""
    short = [(power, chance.choice(range(LEAST_DIVISOR, power))) for power in DIVIDED if power < min(ALL_DIVISORS)]
    long = [[(power, divisor) for power in ALL_DIVISORS if divisor < power] for divisor in range(LEAST_DIVISOR, max(ALL_DIVISORS))]
    made = []
    for power, divisor in (*short, *(pair for pairs in long for pair in ([chance.choice(pairs)] if gpu else pairs))):
        columns = odd_multiple(chance, 1 << divisor, 2**power, 2 ** (power + 1))
        made.append(of_any_values(op, chance, chance.choice((1, 1, 2)), columns, chance.choice(DTYPES), label="fresh-divided"))
    return made


def _of_rows(op: Op, chance: random.Random, turn: int) -> list[Draft]:
    """Rows by the dozen that a power of two divides and its double does not; small tiles divide half of their columns too."""
    made = []
    for power in ROW_DIVISORS:
        rows = odd_multiple(chance, 1 << power, 9, max(3 << power, between(chance, *MANY)))
        columns = short(op, chance) if op.kind in ROPE_KINDS or chance.random() < 0.5 else 16 * chance.choice((1, 2, 3, 4, 8))
        made.append(of_any_values(op, chance, rows, columns, DTYPES[(turn + power) % len(DTYPES)], label="fresh-row-tiles"))
    return made


def _hard(chance: random.Random) -> float:
    """Rows of many kinds as they are, or so large that nothing goes without a guard."""
    return chance.choice((1.0, MIXED_SCALE))
