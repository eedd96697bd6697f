"""The choices behind one kernel: `Design` holds what changes the program, `Naming` only what its parts are called.

Corpus kernels are validated once per design (names do not matter to a referee) and then written under many namings.
Every choice is drawn from a seeded generator, so a corpus can be made again bit for bit.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

_PLACE = re.compile(r"\$(\w+)")

BASES = ("inline", "offsets", "advance")
EPS_FORMS = ("literal", "argument", "constexpr")
WARPS = (
    "num_warps=8",
    "num_warps=8 if $BLOCK >= 2048 else 4",
    "num_warps=4 if $BLOCK <= 2048 else 8",
    "num_warps=min(max($BLOCK // 512, 1), 16)",
)
TILE_WARPS = ("num_warps=4", "num_warps=8")


@dataclass(frozen=True)
class Design:
    """What makes a kernel the program it is. Families ignore the fields that do not concern them."""

    structure: str
    base: str = "inline"
    eps: str = "literal"
    strides: bool = False
    cast_store: bool = False
    early_vectors: bool = True
    split_rsqrt: bool = False
    sqrt_form: bool = False
    inline_mask: bool = False
    warps: int = 0
    block: int = 1024
    forms: tuple[int, ...] = field(default=(0, 0, 0))


def draw_design(rng: random.Random, structure: str) -> Design:
    """One design of a structure, the plain choices being the likely ones."""
    return Design(
        structure=structure,
        base=rng.choices(BASES, (5, 3, 2))[0],
        eps=rng.choices(EPS_FORMS, (4, 4, 2))[0],
        strides=rng.random() < 0.15,
        cast_store=rng.random() < 0.35,
        early_vectors=rng.random() < 0.6,
        split_rsqrt=rng.random() < 0.4,
        sqrt_form=rng.random() < 0.1,
        inline_mask=rng.random() < 0.4,
        warps=rng.choices(range(4), (5, 3, 1, 2))[0],
        block=rng.choice((1024, 1024, 2048, 4096)),
        forms=tuple(rng.choices(range(4), (5, 3, 2, 2))[0] for _ in range(3)),
    )


@dataclass(frozen=True)
class Naming:
    """Text for every `$place` of a template."""

    names: dict[str, str]

    def fill(self, text: str) -> str:
        """`text` with its places named. Raises KeyError for an unknown place."""
        return _PLACE.sub(lambda match: self.names[match.group(1)], text)


_LONG = {"residual": "residual", "w": "weight", "b": "bias", "bias": "bias", "tgt": "target"}
_SHORT = {"residual": "res"}
_CAPS = {
    "x": "X",
    "residual": "R",
    "w": "W",
    "b": "B",
    "bias": "B",
    "gate": "GATE",
    "up": "UP",
    "scale": "SCALE",
    "q": "Q",
    "tgt": "TGT",
    "cos": "COS",
    "sin": "SIN",
    "y": "Y",
}
_ARGUMENTS = ("x", "residual", "w", "b", "bias", "gate", "up", "scale", "q", "tgt", "cos", "sin", "y")


def draw_naming(rng: random.Random, op_name: str) -> Naming:
    """A consistent set of names. The output is `out` whenever the op has an input `y`."""
    form = rng.choices(("short", "long", "caps"), (5, 2, 2))[0]
    out = "out" if op_name == "kl_div" else rng.choice(("y", "out"))
    names = {"run_out": out}
    for argument in _ARGUMENTS:
        if form == "caps":
            names[f"{argument}_ptr"] = _CAPS[argument]
        else:
            names[f"{argument}_ptr"] = (_LONG if form == "long" else _SHORT).get(argument, argument) + "_ptr"
        names[f"stride_{argument}"] = f"stride_{argument if argument != 'residual' else 'r'}"
    names["out_ptr"] = out.upper() if form == "caps" else f"{out}_ptr"
    names["stride_out"] = f"stride_{out}"
    kernel = rng.choices(("_{}_kernel", "{}_kernel", "_kernel", "_fused_kernel"), (4, 2, 3, 1))[0].format(op_name)
    block = rng.choices(("BLOCK", "BLOCK_N", "BLOCK_SIZE"), (6, 2, 2))[0]
    rows, columns = rng.choices((("M", "N"), ("n_rows", "n_cols")), (3, 1))[0]
    cols = rng.choices(("cols", "offs", "col"), (5, 3, 1))[0]
    names |= {
        "kernel": kernel,
        "BLOCK": block,
        "ROWS": {"BLOCK": "ROWS", "BLOCK_N": "BLOCK_M", "BLOCK_SIZE": "ROWS"}[block],
        "M": rows,
        "N": columns,
        "cols": cols,
        "idx": "idx" if cols == "offs" else rng.choice(("offs", "idx")),
        "row": rng.choices(("row", "pid"), (3, 1))[0],
        "rows": "rows",
        "mask": "mask",
        "start": rng.choices(("start", "off"), (3, 1))[0],
        "rstd": rng.choices(("rstd", "inv", "scale"), (3, 1, 1))[0],
        "n_elements": rng.choices(("n_elements", "numel", "total"), (3, 1, 1))[0],
        "offs": rng.choice(("offs", "idx")),
        "pid": "pid",
    }
    return Naming(names)
