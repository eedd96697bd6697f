"""Operations and functions that training never sees, and everything equal to them.

`heldout.toml` names operations of the catalogue, and remixes that measure composition.
`heldout_functions.txt` has digests of the functions of `bench/functions`; `python -m forge.heldout`
writes them.
"""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path

from forge.digests import body, digest_of
from kmint_tui.graph.operations import catalogue_program
from kmint_tui.graph.program import Program
from referee.ops import catalogue

FILE = Path(__file__).with_name("heldout.toml")
FUNCTIONS = Path(__file__).with_name("heldout_functions.txt")


@lru_cache(maxsize=1)
def heldout_names() -> frozenset[str]:
    """The operations' names, with their forms on short and wide rows."""
    named = set(tomllib.loads(FILE.read_text(encoding="utf-8"))["catalogue"])
    return frozenset(
        op.name
        for op in catalogue()
        if op.name.removesuffix("_short").removesuffix("_wide") in named
    )


def heldout_remixes() -> tuple[str, ...]:
    """Operations with two activations that measure composition."""
    return tuple(tomllib.loads(FILE.read_text(encoding="utf-8"))["remix"])


def is_held_out(program: Program) -> bool:
    """True when one of its stages computes the same as a held-out stage."""
    texts = [body(stage) for stage in program.stages]
    return any(text in _texts() or digest_of(text) in _function_digests() for text in texts)


@lru_cache(maxsize=1)
def _texts() -> frozenset[str]:
    """The texts of the stages of the held-out operations."""
    programs = (catalogue_program(name) for name in heldout_names())
    return frozenset(body(stage) for made in programs if made for stage in made.stages)


@lru_cache(maxsize=1)
def _function_digests() -> frozenset[str]:
    return frozenset(FUNCTIONS.read_text(encoding="utf-8").split())


def main() -> None:
    """Add the stages of the functions of `bench/functions`, as they are traced now."""
    from bench.functions.cases import CASES
    from kmint_tui.graph.trace import traced_reference
    from referee.reference.asked import Asked

    digests = set(_function_digests())
    for group, functions in CASES.items():
        for name, inputs in functions.items():
            program = traced_reference(Asked(f"bench/functions/{group}.py", name, (inputs,)))
            digests |= {digest_of(body(stage)) for stage in program.stages}
    FUNCTIONS.write_text("".join(f"{one}\n" for one in sorted(digests)), encoding="utf-8")


if __name__ == "__main__":
    main()
