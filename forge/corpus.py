"""The training corpus: pairs of a stage and a kernel, tokenised, in one file.

`python -m forge.corpus build/forge` writes `corpus.npz` and the tokenizer. The seeds determine
everything. The application's own prompt builder and chat template make the prompts, so training and
use have the same text. `packed.py` has the file's layout.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from forge import tokenizer as bpe
from forge.choices import draw
from forge.digests import digest_of
from forge.graphs import program
from forge.heldout import heldout_names, is_held_out
from forge.packed import Evaluated, Pair, pack
from forge.workers import results
from kmint_tui.graph.operations import catalogue_program
from kmint_tui.graph.program import OutOfScope, Program, Stage, at_shapes
from kmint_tui.smith.prompts import graph_prompt
from kmint_tui.smith.template import FENCE, render
from kmint_tui.template.structures import kernel_source
from referee.ops import catalogue, cells

SEEDS = 45_000
VARIANTS = 2
"""Kernels of one random function."""
CATALOGUE_SHAPES, CATALOGUE_TIMES = 3, 4
"""Shapes of an operation next to the timed one, and kernels of each; its functions are few."""
FENCED, REPAIR = 0.2, 0.08
"""Shares of the answers in a fence, and of the prompts that quote the referee."""
CLOSE = "```"


def drawn(seed: int) -> Program | None:
    """The random function of a seed; None for an invalid or a held-out one."""
    try:
        made = program(random.Random(seed))
    except OutOfScope:
        return None
    return None if is_held_out(made) else made


def kernels(stage: Stage, rng: random.Random, count: int) -> list[str]:
    """Different kernels for a stage."""
    found: list[str] = []
    for _ in range(4 * count):
        source = kernel_source(stage, *draw(stage, rng))
        found += [source] if source not in found else []
        if len(found) == count:
            break
    return found


def catalogue_stages() -> Iterator[tuple[str, Stage]]:
    """The catalogue's stages for training, at shapes that are judged and timed."""
    for op in catalogue():
        made = catalogue_program(op.name)
        if op.name in heldout_names() or made is None:
            continue
        shapes = [
            {spec.name: spec.shape for spec in cell.inputs}
            for cell in cells(op, profile="gpu")
            if cell.role != "capability"
        ]
        rng = random.Random(op.name)
        for shape in rng.sample(shapes, min(CATALOGUE_SHAPES, len(shapes))):
            yield op.name, at_shapes(made, shape).stages[0]
        yield op.name, made.stages[0]


def feedback(rng: random.Random) -> str:
    """A line in the form of the referee's feedback on an earlier draft."""
    error, elements = rng.uniform(0.01, 900), rng.randint(1, 150000)
    name, columns = rng.randint(0, 20), rng.choice((127, 1000, 4097))
    return rng.choice(
        (
            f"incorrect: error {error:.3g} at f16-37x4097-mixed-x64, "
            f"{elements} elements over the tolerance",
            f"compile: NameError('v{name} is not defined')",
            "incorrect: the output holds NaN at f32-5x1000-mixed-x1",
            "screen: the source does not parse: '(' was never closed",
            f"incorrect: wrong at odd sizes (rows of {columns}): masked lanes enter the reduction",
            f"loss: {rng.uniform(0.4, 0.98):.2f}x of the fastest baseline",
        )
    )


@lru_cache(maxsize=20_000)
def prompt_text(stage: Stage, *, fenced: bool = False, repair: str | None = None) -> str:
    """The exact text that the smith reads."""
    return render(
        graph_prompt(stage, feedback=repair),
        bpe.CHAT_TEMPLATE,
        bos=bpe.BOS,
        prefill=FENCE if fenced else "",
    )


def pair(stage: Stage, source: str, rng: random.Random) -> Pair:
    """One example of a kernel."""
    fenced = rng.random() < FENCED
    repair = feedback(rng) if rng.random() < REPAIR else None
    return Pair(
        prompt_text(stage, fenced=fenced, repair=repair),
        source + CLOSE if fenced else source,
        digest_of(source),
    )


def seed_kernels(seed: int) -> tuple[Program, list[str], random.Random] | None:
    """The function of a seed, kernels for its main stage, and the generator for the rest."""
    made = drawn(seed)
    if made is None:
        return None
    rng = random.Random(-seed - 1)
    return made, kernels(made.stages[made.main], rng, VARIANTS), rng


def seed_pairs(seed: int) -> list[Pair]:
    """The examples of a seed."""
    found = seed_kernels(seed)
    if found is None:
        return []
    made, sources, rng = found
    return [pair(made.stages[made.main], source, rng) for source in sources]


def catalogue_examples() -> Iterator[tuple[str, str, Pair]]:
    """The examples of the catalogue, each with the operation's name and the kernel."""
    rng = random.Random(0)
    for name, stage in catalogue_stages():
        for _ in range(CATALOGUE_TIMES):
            source = kernel_source(stage, *draw(stage, rng))
            yield name, source, pair(stage, source, rng)


def _some(seeds: range) -> list[Pair]:
    return [one for seed in seeds for one in seed_pairs(seed)]


def all_pairs(seeds: int, processes: int) -> list[Pair]:
    """Every example, in an order that the processes do not change."""
    blocks = [range(start, min(start + 500, seeds)) for start in range(0, seeds, 500)]
    found = sorted(results(_some, blocks, processes), key=lambda block: block[0].digest)
    examples = [one for block in found for one in block]
    examples += [one for _, _, one in catalogue_examples()]
    random.Random(1).shuffle(examples)
    return examples


def evaluated() -> list[Evaluated]:
    """The prompt of every operation of the catalogue, held out or not."""
    programs = ((op.name, catalogue_program(op.name)) for op in catalogue())
    return [
        Evaluated(name, name in heldout_names(), prompt_text(made.stages[0]))
        for name, made in programs
        if made is not None
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="write the training corpus")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    examples = all_pairs(arguments.seeds, arguments.processes)
    figures = {"seeds": arguments.seeds, **pack(examples, evaluated(), folder)}
    text = json.dumps(figures, indent=1)
    (folder / "corpus.json").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
