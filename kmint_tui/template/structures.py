"""The structures of a kernel: each says which elements a program has, and how it reads them.

row      a whole row in one block;
tile     several rows in one block;
persist  as many programs as the card holds at once, each with one row after the other;
loop     a row in blocks, once for each reduction that depends on another;
flat     any elements, where nothing is reduced;
pairs    the same, and elements 2i and 2i + 1 are read and written together;
grid     a block of one row, where nothing is reduced.
"""

from __future__ import annotations

from typing import Literal

from kmint_tui.graph.program import Stage, is_rowwise
from kmint_tui.template.frame import INDENT, Frame, Settings
from kmint_tui.template.pointwise import Flat, Grid, Pairs
from kmint_tui.template.rowwise import Loop, Persist, Row, Tile

Structure = Literal["row", "tile", "persist", "loop", "flat", "pairs", "grid"]
_FRAMES: dict[Structure, type[Frame]] = {
    "row": Row,
    "tile": Tile,
    "persist": Persist,
    "loop": Loop,
    "flat": Flat,
    "pairs": Pairs,
    "grid": Grid,
}
_PRODUCT = "@triton.jit\ndef product(x, y):\n    return x * y\n\n\n"


def structures_of(stage: Stage) -> tuple[Structure, ...]:
    """The structures that a stage can have."""
    if not stage.is_rowwise:
        if stage.has_rows:
            return ("flat", "grid", "tile")
        return ("flat", "pairs") if Pairs(stage, Settings()).partners else ("flat",)
    loops = all(line.op in ("sum", "max", "min") for line in stage.lines if is_rowwise(line.op))
    found: tuple[Structure, ...] = ("row", "tile", "persist") if stage.has_rows else ("row",)
    return (*found, "loop") if loops else found


def kernel_source(stage: Stage, structure: Structure, settings: Settings) -> str:
    """`kernel` and `launch` of a stage, in the stage's names. Constants stay `k0`, `k1`, ...."""
    frame = _FRAMES[structure](stage, settings)
    names = ", ".join(
        (*stage.arguments, *frame.extra, *(f"{name}: tl.constexpr" for name in frame.constants))
    )
    helper = _PRODUCT if any(line.op == "prod" for line in stage.lines) else ""
    body = "".join(f"{INDENT}{line}\n" for line in frame.body())
    host = "".join(f"{INDENT}{line}\n" for line in frame.host())
    kernel = f"{helper}@triton.jit\ndef kernel({names}):\n{body}"
    return f"{kernel}\n\ndef launch({', '.join(stage.arguments)}):\n{host}"
