"""The structure and settings of a stage's kernel in the corpus; fast ones are likely."""

from __future__ import annotations

import random
import re

from kmint_tui.graph.program import PLAIN, Stage
from kmint_tui.template.frame import Settings
from kmint_tui.template.structures import Structure, structures_of

_STRIDED = re.compile(r"\bc \* K")


def _weights(stage: Stage) -> dict[Structure, int]:
    _, columns = stage.example
    if not stage.is_rowwise:
        plain = all(address == PLAIN for address in stage.addresses)
        return {"flat": 8, "grid": 2} if plain or columns < 1024 else {"flat": 4, "grid": 6}
    if not stage.has_rows:
        return {"loop": 8, "row": 2}
    if any(_STRIDED.search(address) for address in stage.addresses):
        return {"tile": 8, "row": 1, "loop": 1}
    if columns <= 512:
        return {"tile": 8, "row": 2}
    if columns <= 1024:
        return {"tile": 5, "row": 5}
    if columns <= 8192:
        return {"row": 16, "loop": 3, "tile": 1}
    if columns <= 16384:
        return {"row": 6, "loop": 4}
    return {"loop": 17, "row": 3}


def draw(stage: Stage, rng: random.Random) -> tuple[Structure, Settings]:
    """One structure with its settings."""
    possible = structures_of(stage)
    weights = {
        name: weight for name, weight in _weights(stage).items() if name in possible
    } or dict.fromkeys(possible, 1)
    structure = rng.choices(tuple(weights), tuple(weights.values()))[0]
    return structure, _settings(structure, stage, rng)


def _settings(structure: Structure, stage: Stage, rng: random.Random) -> Settings:
    columns = stage.example[1]
    match structure:
        case "tile" if any(_STRIDED.search(address) for address in stage.addresses):
            return Settings(
                rows=rng.choice((32, 64)), elements=rng.choice((8192, 16384)), warps="8"
            )
        case "tile":
            return Settings(
                rows=rng.choice((8, 16, 32)),
                elements=rng.choice((2048, 4096, 8192)),
                warps=rng.choice(("4", "4", "8")),
            )
        case "loop":
            block = rng.choice((1024, 2048, 4096, 4096, 8192))
            return Settings(block=block, warps={1024: "4", 2048: "8", 4096: "8", 8192: "16"}[block])
        case "flat" | "grid":
            return Settings(block=rng.choice((1024, 1024, 2048)), warps=rng.choice(("4", "4", "8")))
    likely = "4" if columns <= 2048 else "8" if columns <= 8192 else "16"
    forms = (likely, likely, "8", "4 if BLOCK <= 2048 else 8", "min(max(BLOCK // 512, 1), 16)")
    return Settings(warps=rng.choice(forms))
