"""The structures of a kernel: each says which elements a program has, and how it reads them.

row      a whole row in one block;
tile     several rows in one block;
persist  as many programs as the card holds at once, each with one row after the other;
loop     a row in blocks, once for each reduction that depends on another;
split    a part of a row, in two launches: the first reduces it, the second writes it;
flat     any elements, where nothing is reduced;
pairs    the same, and elements 2i and 2i + 1 are read and written together;
grid     a block of one row, where nothing is reduced.
"""

from __future__ import annotations

from typing import Literal

from kmint_tui.graph.program import Stage
from kmint_tui.template.frame import INDENT, Frame, Settings
from kmint_tui.template.pointwise import Flat, Grid, Pairs
from kmint_tui.template.reductions import reductions
from kmint_tui.template.rowwise import Loop, Persist, Row, Tile
from kmint_tui.template.split import Split, not_split

Structure = Literal["row", "tile", "persist", "loop", "split", "flat", "pairs", "grid"]
_FRAMES: dict[Structure, type[Frame]] = {
    "row": Row,
    "tile": Tile,
    "persist": Persist,
    "loop": Loop,
    "split": Split,
    "flat": Flat,
    "pairs": Pairs,
    "grid": Grid,
}
_PRODUCT = "@triton.jit\ndef product(x, y):\n    return x * y\n\n\n"


MOST_ROWS, MOST_BLOCKS = 2**31 - 1, 65_535
"""CUDA's limits for the first grid dimension, and for the second."""


def structures_of(stage: Stage) -> tuple[Structure, ...]:
    """The structures that a stage can have."""
    return tuple(structure for structure, reason in unfit(stage).items() if not reason)


def unfit(stage: Stage) -> dict[Structure, str]:
    """For each structure the reason why a stage cannot have it; empty if it can.

    A stage that reduces rows has other structures than one that does not.
    """
    single = "" if stage.has_rows else "the stage has one row"
    if not stage.is_rowwise:
        neighbours = "" if Pairs(stage, Settings()).partners else "it reads no neighbours as pairs"
        return {
            "flat": "",
            "grid": single or _beyond_the_grid(stage),
            "tile": single,
            "pairs": "its elements lie in rows" if stage.has_rows else neighbours,
        }
    ops = {line.op for line in reductions(stage)} - {"sum", "max", "min"}
    return {
        "row": "",
        "tile": single,
        "persist": single,
        "loop": f"blocks of a row do not make its `{min(ops)}`" if ops else "",
        "split": not_split(stage),
    }


def _beyond_the_grid(stage: Stage) -> str:
    """The reason why a grid of rows and blocks is too large for CUDA; empty if it is not."""
    rows, columns = stage.example
    if rows > MOST_ROWS:
        return f"a grid has at most {MOST_ROWS:,} rows"
    if columns > MOST_BLOCKS * Settings().block:
        return f"a grid has at most {MOST_BLOCKS:,} blocks of {Settings().block:,} columns"
    return ""


def kernel_source(stage: Stage, structure: Structure, settings: Settings) -> str:
    """`kernel` and `launch` of a stage, in the stage's names. Constants stay `k0`, `k1`, ...."""
    frame = _FRAMES[structure](stage, settings)
    parts = list(frame.kernels())
    helper = _PRODUCT if any(line.op == "prod" for line in stage.lines) else ""
    host = "".join(f"{INDENT}{line}\n" for line in (*frame.setup(), *(one.launch for one in parts)))
    kernels = "\n\n".join(one.source for one in parts)
    return f"{helper}{kernels}\n\ndef launch({', '.join(stage.arguments)}):\n{host}"
