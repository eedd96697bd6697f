"""The rule of what a round keeps for training.

Only kernels that the referee accepted are kept, each different one once for its place. Where
kernels are timed, the fastest of a place counts `FASTEST` times. So does every kernel whose
interval reaches into that of the fastest, since their order is not certain. Other right kernels count
once. Where nothing is timed, all right kernels count once.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from forge.corpus import SEEDS, catalogue_examples, pair, seed_pairs
from forge.drafting import Draft
from forge.heldout import is_held_out
from forge.judging import Key, Reward
from forge.packed import Pair
from forge.places import Place
from kmint_tui.graph.operations import catalogue_program

FASTEST = 8
_MARKS = (
    ("split", re.compile(r"\bSPLITS\b")),
    ("loop", re.compile(r"\bfor start in range\(")),
    ("persist", re.compile(r"\bfor row in range\(tl\.program_id")),
    ("tile", re.compile(r"\bROWS: tl\.constexpr")),
    ("grid", re.compile(r"\btl\.program_id\(1\)")),
    ("pairs", re.compile(r"\bboth = j < ")),
    ("flat", re.compile(r"\bmask = i < total")),
    ("row", re.compile(r"\bBLOCK = triton\.next_power_of_2\(N\)")),
)
"""The first mark in a kernel's text names its structure (`kmint_tui/template/structures.py`)."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A right kernel for one place, with its weight in training. `round` is the first one."""

    place: str
    shape_class: str
    structure: str
    answer: str
    same: str
    round: int
    weight: int
    ratio: float | None
    low: float | None
    high: float | None


@lru_cache(maxsize=256)
def _is_held_out(name: str) -> bool:
    """Whether an operation of the catalogue equals a held-out one or a held-out function."""
    program = catalogue_program(name)
    return program is not None and is_held_out(program)


def structure_of(source: str) -> str:
    """The structure of a kernel by its text; "other" for an unknown one."""
    return next((name for name, mark in _MARKS if mark.search(source)), "other")


def select(
    places: Sequence[Place],
    drafts: Iterable[Draft],
    rewards: Mapping[Key, Reward],
    number: int,
    before: Sequence[Kept] = (),
) -> list[Kept]:
    """The kept kernels of round `number` and of those before it.

    Raises ValueError for a place that is held out.
    """
    by_name = {place.name: place for place in places}
    if held := [place.name for place in places if is_held_out(place.program)]:
        raise ValueError(f"{held[0]} is held out, so nothing of it may be kept")
    found = {(one.place, one.same): one for one in before if one.place in by_name}
    for draft in drafts:
        key = draft.place, draft.same
        reward = rewards.get(key)
        if reward is None or not reward.right or key in found:
            continue
        found[key] = Kept(
            place=draft.place,
            shape_class=by_name[draft.place].shape_class,
            structure=structure_of(draft.answer),
            answer=draft.answer,
            same=draft.same,
            round=number,
            weight=1,
            ratio=reward.ratio,
            low=reward.low,
            high=reward.high,
        )
    of_place: dict[str, list[Kept]] = {place.name: [] for place in places}
    for one in found.values():
        of_place[one.place].append(one)
    return [one for some in of_place.values() for one in weighted(some)]


def weighted(kept: Sequence[Kept]) -> list[Kept]:
    """The kept kernels of one place with their weights."""
    timed = [(one.ratio, one.low) for one in kept if one.ratio is not None and one.low is not None]
    if not timed:
        return [replace(one, weight=1) for one in kept]
    _, low = max(timed)
    return [
        replace(one, weight=FASTEST if one.high is not None and one.high >= low else 1)
        for one in kept
    ]


def examples(places: Sequence[Place], kept: Sequence[Kept], seed: int) -> list[Pair]:
    """The kept kernels as training examples, each as often as its weight.

    Some answers are fenced and some prompts have feedback, as in the corpus.
    """
    rng = random.Random(seed)
    by_name = {place.name: place for place in places}
    return [
        pair(by_name[one.place].stage, one.answer, rng) for one in kept for _ in range(one.weight)
    ]


def replayed(count: int, apart_from: Collection[str], seed: int) -> list[Pair]:
    """At least `count` examples of the corpus, so that training on few kernels forgets nothing.

    A quarter comes from the catalogue and the rest from random functions; nothing of them is held
    out. The catalogue's examples with the text of a stage in `apart_from` are left out: they would
    contradict the kept kernels.
    """
    rng = random.Random(seed)
    found: list[Pair] = []
    named = [
        one
        for name, _, one in catalogue_examples()
        if not _is_held_out(name) and not any(text in one.prompt for text in apart_from)
    ]
    found += rng.sample(named, min(len(named), count // 4))
    while len(found) < count:
        found += seed_pairs(rng.randrange(SEEDS))
    return found
