"""Drawn cells of several long rows, and of rows as long as vocabularies, for the interpreter.

Partial results of three or more parts of a split row may collide where two do not. Operations on
logits also get a row of the widest current vocabulary. In half of all verdicts they get another
vocabulary instead of other long rows. The secret seed decides dtypes and widths.

Limits: the interpreter takes no larger tensor. A replay has such rows only for a kernel that is to
be saved, because compiling a kernel with such a block takes long.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace

from referee.ops.catalogue import base_name
from referee.ops.cell_spec import CellSpec
from referee.ops.cells import cell_of
from referee.ops.fresh_cells import DTYPES, between, odd_multiple
from referee.ops.op_cells import FROM_THE_LARGEST
from referee.ops.signatures import KINDS, ROPE_KINDS
from referee.ops.spec import Cell, Dtype, Op

VOCABULARIES = (50_257, 128_256, 151_936, 262_144)
"""Vocabulary sizes of GPT-2, Llama 3, Qwen 2.5 and Gemma 3."""
ROWS = 3
WIDE = "wide"
_WIDE = (
    CellSpec(37, 16_384, "bfloat16", "mixed", role="capability", label=WIDE),
    CellSpec(ROWS, 33_001, "float32", "mixed", role="capability", label=WIDE),
)
LONG, LONGER = (17_001, 40_000), (17_001, 80_000)


def fresh_long(op: Op, seed: int) -> tuple[Cell, ...]:
    """The cells of this seed; the same seed gives the same cells. None for a user's task."""
    if op.kind not in KINDS or op.kind in ROPE_KINDS:
        return ()
    chance = random.Random(hashlib.sha256(f"{seed}\0long".encode()).digest())
    length = LONGER if op.regime == "wide" else LONG
    columns = chance.choice((between(chance, *length), _odd_multiple(chance, *length)))
    long = CellSpec(ROWS, columns, _dtype(chance), "normal", 8.0, label="fresh-long")
    specs = [long]
    if base_name(op) in FROM_THE_LARGEST:
        narrowest, *others, widest = VOCABULARIES
        specs.append(CellSpec(1, widest, _dtype(chance), "normal", 4.0, label="vocabulary"))
        narrower = [(ROWS, narrowest), *((1, width) for width in others)]
        # Long rows and other vocabularies are equally likely.
        if chance.random() < 0.5:
            specs[0] = replace(
                long, rows=(picked := chance.choice(narrower))[0], columns=picked[1], scale=4.0
            )
    return tuple(
        {cell.name: cell for cell in (cell_of(op, cell_spec) for cell_spec in specs)}.values()
    )


def wide_cells(op: Op) -> tuple[Cell, ...]:
    """Fixed cells of long rows, as capabilities. A GPU decides by them how long a saved kernel's
    rows may be. None for a user's task.
    """
    if op.kind not in KINDS or op.kind in ROPE_KINDS or op.regime == "wide":
        return ()
    specs = list(_WIDE)
    if base_name(op) in FROM_THE_LARGEST:
        dtypes: tuple[Dtype, ...] = ("float16", "bfloat16")
        specs += [
            CellSpec(ROWS, width, dtypes[at % 2], "normal", 4.0, role="capability", label=WIDE)
            for at, width in enumerate(VOCABULARIES)
        ]
    return tuple(cell_of(op, one) for one in specs)


def _dtype(chance: random.Random) -> Dtype:
    return chance.choice(DTYPES)


def _odd_multiple(chance: random.Random, low: int, high: int) -> int:
    return odd_multiple(chance, 1 << chance.randint(4, (high // 3).bit_length() - 1), low, high)
