"""The kernels of a program in every structure that may be the fastest at its example shape.

A race on a GPU chooses among them. They differ in structure and in sizes that are no launch
constants; the tuner changes the launch constants of the fastest. A structure that is not raced has
a reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kmint_tui.graph.program import Program, Stage
from kmint_tui.template.frame import Settings
from kmint_tui.template.structures import Structure, kernel_source, unfit
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
PERSISTENT = (512, 1024, 2048)
"""Numbers of persistent programs. Each is raced where a program has at least four rows."""
FEW = 64
"""Rows up to which a card has more multiprocessors than rows, so that rows are split."""
SPLIT = 16384
"""Columns from which a part of a row takes longer than the start of a second kernel."""
SHARED = (128, 256, 512)
"""Programs that split the rows among them: one to four for each multiprocessor of a large card."""
LEAST_PART, MOST_PART = 512, 4096
"""Columns of the smallest part of a row, and of its largest block."""
_LOOPS = ((1024, "4"), (2048, "8"), (4096, "16"), (8192, "32"), (16384, "32"))


@dataclass(frozen=True)
class Variant:
    """One kernel file; `words` names the structures of its stages."""

    words: str
    source: str


@dataclass(frozen=True)
class Untried:
    """A structure that no variant of a stage has, with the reason."""

    words: str
    reason: str


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


def untried(program: Program) -> tuple[Untried, ...]:
    """The structures that `variants` leaves out, stage by stage."""
    several = len(program.stages) > 1
    return tuple(
        Untried(f"{structure} of stage {number}" if several else structure, found)
        for number, stage in enumerate(program.stages)
        for structure, found in _suited(stage).items()
        if isinstance(found, str)
    )


def _choices(stage: Stage) -> Iterator[tuple[Structure, Settings]]:
    for structure, found in _suited(stage).items():
        if not isinstance(found, str):
            yield from ((structure, settings) for settings in found)


def _suited(stage: Stage) -> dict[Structure, Sequence[Settings] | str]:
    """For each structure the settings to race, or the reason why it is not raced."""
    refused = unfit(stage)
    suited = _suited_to_rows(stage) if stage.is_rowwise else _suited_to_elements(stage)
    return {structure: refused[structure] or found for structure, found in suited.items()}


def _suited_to_elements(stage: Stage) -> dict[Structure, Sequence[Settings] | str]:
    rows, columns = stage.example
    flat = Settings(block=1024, warps="4")
    sizes = (256, 512, 1024) if rows * columns <= SMALL else (1024, 2048, 4096)
    return {
        "tile": [Settings(rows=64, elements=one, warps="4") for one in sizes]
        if columns <= NARROW
        else f"a tile holds rows of at most {NARROW:,} columns",
        "flat": [flat],
        "pairs": [flat],
        "grid": [flat]
        if columns > LOOPED // 2
        else f"a row of at most {LOOPED // 2:,} columns is one block",
    }


def _suited_to_rows(stage: Stage) -> dict[Structure, Sequence[Settings] | str]:
    rows, columns = stage.example
    warps = "4" if columns <= 2048 else "8" if columns <= 8192 else "16"
    tiles = [2**power for power in range(11, 15) if 2**power >= 2 * columns]
    loops = [
        (block, count)
        for block, count in _LOOPS
        if block < columns <= MOST_BLOCKS * block and columns >= LOOPED
    ]
    held = [number for number in PERSISTENT if rows >= 4 * number]
    short = columns <= WIDE or not stage.has_rows
    whole = [warps if columns <= 32768 else "32", *(["32"] if 8192 < columns <= 32768 else [])]
    long = f"a block holds no row of more than {WIDE:,} columns"
    return {
        "tile": [Settings(rows=64, elements=one, warps="4") for one in tiles]
        if rows > FEWEST and columns <= NARROW
        else f"a program takes several rows of more than {FEWEST}, with at most {NARROW:,} columns",
        "row": [Settings(warps=one) for one in (whole if short else ["32"])]
        if short or unfit(stage)["loop"]
        else long,
        "persist": [Settings(programs=one, warps=warps) for one in held]
        if columns <= WIDE and held
        else (long if columns > WIDE else f"fewer than {4 * PERSISTENT[0]:,} rows need no queue"),
        "loop": [Settings(block=block, warps=count) for block, count in loops]
        or f"no block of {_LOOPS[0][0]:,} to {_LOOPS[-1][0]:,} columns suits a row of {columns:,}",
        "split": _splits(rows, columns),
    }


def _splits(rows: int, columns: int) -> Sequence[Settings] | str:
    if rows > FEW:
        return f"more than {FEW} rows keep a card busy in one launch"
    if columns < SPLIT:
        return f"a row of fewer than {SPLIT:,} columns takes less time than a second launch"
    most = columns // LEAST_PART
    found = dict.fromkeys(max(2, _power(min(programs // rows, most))) for programs in SHARED)
    settings = []
    for splits in found:
        block = min(_power(columns // splits), MOST_PART)
        settings.append(Settings(splits=splits, block=block, warps=str(block // 256)))
    return settings


def _power(number: int) -> int:
    """The largest power of two that is not above a number; at least 1."""
    return 1 << max(0, number.bit_length() - 1)


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
        case "split":
            return f"rows in {settings.splits} splits by two launches"
    return f"whole row by {settings.warps} warps"
