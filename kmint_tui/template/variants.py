"""The kernels of a program in every structure that may be the fastest at its example shape.

A race on a GPU chooses among them. They differ in structure and in sizes that are no launch
constants; the tuner changes the launch constants of the fastest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kmint_tui.graph.program import Program, Stage
from kmint_tui.template.frame import Settings
from kmint_tui.template.structures import Structure, kernel_source, structures_of
from kmint_tui.template.write import program_source

NARROW, WIDE = 4096, 65536
"""Columns: several rows share a program up to the first, and a block holds no row beyond the second."""
LOOPED = 2048
"""Columns from which a row is read in blocks."""
MOST_BLOCKS = 64
"""Blocks of a row: with more, each pass is slow."""
SMALL = 1 << 19
"""Elements up to which a kernel's time is that of its start, so that many programs help."""
FEWEST = 512
"""Rows from which a program may take several."""


@dataclass(frozen=True)
class Variant:
    """One kernel file; `words` names the structures of its stages."""

    words: str
    source: str


def variants(program: Program) -> tuple[Variant, ...]:
    """The different kernels of a program, at most about ten.

    The stages of a program change together: the first variant has the first choice of each stage.
    """
    choices = [list(_choices(stage)) for stage in program.stages]
    found: dict[str, Variant] = {}
    for number in range(max(map(len, choices), default=0)):
        chosen = [some[min(number, len(some) - 1)] for some in choices]
        drafted = {
            at: kernel_source(stage, *choice)
            for at, (stage, choice) in enumerate(zip(program.stages, chosen, strict=True))
        }
        source = program_source(program, drafted)
        words = ", ".join(dict.fromkeys(_words(*choice) for choice in chosen))
        found.setdefault(source, Variant(words, source))
    return tuple(found.values())


def _choices(stage: Stage) -> Iterator[tuple[Structure, Settings]]:
    possible = structures_of(stage)
    for structure, settings in _suited(stage):
        if structure in possible:
            yield structure, settings


def _suited(stage: Stage) -> Iterator[tuple[Structure, Settings]]:
    rows, columns = stage.example
    if not stage.is_rowwise:
        if stage.has_rows and columns <= NARROW:
            small = rows * columns <= SMALL
            for elements in (256, 512, 1024) if small else (1024, 2048, 4096):
                yield "tile", Settings(rows=64, elements=elements, warps="4")
        yield "flat", Settings(block=1024, warps="4")
        yield "pairs", Settings(block=1024, warps="4")
        if columns > LOOPED // 2 and rows < 2**31:
            yield "grid", Settings(block=1024, warps="4")
        return
    warps = "4" if columns <= 2048 else "8" if columns <= 8192 else "16"
    if columns <= NARROW and rows > FEWEST:
        for elements in (2048, 4096, 8192, 16384):
            if elements >= 2 * columns:
                yield "tile", Settings(rows=64, elements=elements, warps="4")
    if columns <= WIDE or not stage.has_rows:
        yield "row", Settings(warps=warps if columns <= 32768 else "32")
        if 8192 < columns <= 32768:
            yield "row", Settings(warps="32")
        for programs in (512, 1024, 2048):
            if rows >= 4 * programs:
                yield "persist", Settings(programs=programs, warps=warps)
    if columns >= LOOPED:
        for block, count in ((1024, "4"), (2048, "8"), (4096, "16"), (8192, "32"), (16384, "32")):
            if block < columns <= MOST_BLOCKS * block:
                yield "loop", Settings(block=block, warps=count)
    if columns > WIDE and "loop" not in structures_of(stage):
        yield "row", Settings(warps="32")


def _words(structure: Structure, settings: Settings) -> str:
    match structure:
        case "tile":
            return f"tile of {settings.elements} elements"
        case "loop" | "grid":
            return f"{structure} over blocks of {settings.block} columns"
        case "flat":
            return f"flat blocks of {settings.block} elements"
        case "pairs":
            return f"blocks of {settings.block} pairs"
        case "persist":
            return f"{settings.programs} persistent programs"
    return f"whole row by {settings.warps} warps"
