"""Drafts of the present model for many places, sampled in batches and kept on disk.

Each batch is one file, which appears whole, and has its own seed. A restart samples the missing
batches alone. So the drafts are those of a run without the restart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from convert import files
from forge.checkpoint import Checkpoint
from forge.digests import digest_of, seed_of
from forge.places import Place
from forge.sample import sample
from kmint_tui.smith.canonical import canonical
from kmint_tui.smith.extract import extract
from kmint_tui.template.write import program_source

AT_ONCE = {"cpu": 32, "cuda": 512}
"""Sequences of one batch by the kind of device."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """One answer of the model. `answer` is the kernel in it, and `source` the file around that.

    `same` is the fingerprint of the file. Both texts are empty for an answer without a kernel.
    """

    place: str
    number: int
    answer: str
    source: str
    same: str
    tokens: int
    cut: bool


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """How drafts are sampled: their number for each place, and the most tokens of one."""

    samples: int
    seed: int
    device: str
    most_tokens: int = 900
    temperature: float = 0.7
    top_p: float = 0.97


def draft_all(
    checkpoint: Checkpoint,
    places: Sequence[Place],
    how: Sampler,
    folder: Path,
    tell: Callable[[str], object] = print,
) -> list[Draft]:
    """The drafts of all places, in their order. `folder` keeps the batches; raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    size = max(1, AT_ONCE[how.device] // how.samples)
    found: list[Draft] = []
    for number, start in enumerate(range(0, len(places), size)):
        file = folder / f"{number:04d}.json"
        if not file.exists():
            made = _sampled(checkpoint, places[start : start + size], how, number)
            files.write_text(file, json.dumps([asdict(one) for one in made], indent=1) + "\n")
            tell(f"{len(made)} drafts of batch {number + 1} sampled")
        found += [Draft(**one) for one in json.loads(file.read_text(encoding="utf-8"))]
    return found


def _sampled(
    checkpoint: Checkpoint, places: Sequence[Place], how: Sampler, number: int
) -> list[Draft]:
    tokenizer = checkpoint.tokenizer
    model = checkpoint.model.to(how.device).eval()
    rows = sample(
        model,
        [tokenizer.encode(one.prompt).ids for one in places],
        how.samples,
        eos=checkpoint.eos,
        limit=how.most_tokens,
        seed=seed_of(how.seed, number),
        temperature=how.temperature,
        top_p=how.top_p,
    )
    if how.device == "cuda":
        # The processes of the referee need the memory next.
        torch.cuda.empty_cache()
    return [
        _draft(place, index, tokenizer.decode(row), len(row), len(row) >= how.most_tokens)
        for place, drawn in zip(places, rows, strict=True)
        for index, row in enumerate(drawn)
    ]


def _draft(place: Place, number: int, text: str, tokens: int, cut: bool) -> Draft:
    """The draft in an answer, as the application reads it."""
    answer = extract(text, "length" if cut else "stop").source
    source = program_source(place.program, {place.program.main: answer}) if answer else ""
    return Draft(
        place=place.name,
        number=number,
        answer=answer,
        source=source,
        same=canonical(source) if source else digest_of(""),
        tokens=tokens,
        cut=cut,
    )
