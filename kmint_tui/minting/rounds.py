"""Rounds: the first one asks for drafts, each further one sends rejected drafts back with what the referee said of them.

A repair prompt is the first prompt with one more line, so most of it is still in the engine's memory, and the prompts of a round
are drafted together. They do not quote the draft: that is the form the smiths were trained on. The referee's words quote values
of its secret inputs, so only the first round depends on nothing but the request; the words are kept with the parent's verdict.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kmint_tui.minting.drafts import Draft
from kmint_tui.minting.feedback import feedback
from kmint_tui.minting.request import MintRequest
from kmint_tui.smith.prompts import Prompt, with_feedback
from referee.verdict import Verdict


@dataclass(frozen=True)
class Batch:
    """Drafts made in one run of the smith, numbered from `first`: of one prompt, or each of its own.

    `parents` has one entry a draft: the draft that it repairs, None in round 0.
    """

    prompt: Prompt | tuple[Prompt, ...]
    seed: int
    round: int
    first: int
    parents: tuple[int | None, ...]

    @property
    def drafts(self) -> int:
        """How many are asked for."""
        return len(self.parents)

    @property
    def numbers(self) -> range:
        """The drafts' numbers."""
        return range(self.first, self.first + self.drafts)

    def parent(self, index: int) -> int | None:
        """The draft that draft number `index` repairs."""
        return self.parents[index - self.first]


def first_round(request: MintRequest) -> tuple[Batch, ...]:
    """All the drafts that were asked for, from the request's own prompt and seed."""
    return (Batch(request.prompt, request.seed, 0, 0, (None,) * request.drafts),)


def repairs(request: MintRequest, round_: int, first: int, drafts: Sequence[Draft], verdicts: Mapping[int, Verdict]) -> tuple[Batch, ...]:
    """One new draft for each of `drafts` that was rejected, a repeated kernel included; numbered from `first`. Empty if none was.

    An "error" of the referee says nothing of a draft, so there is nothing to repair.
    """
    said: dict[int, str] = {}
    for draft in sorted(drafts, key=lambda draft: draft.index):
        verdict = verdicts.get(draft.index if draft.duplicate_of is None else draft.duplicate_of)
        if verdict is not None and verdict.verdict == "rejected":
            said[draft.index] = feedback(draft, verdict, request.feedback)
    prompts = tuple(with_feedback(request.prompt, words) for words in said.values())
    return (Batch(prompts, batch_seed(request.seed, first), round_, first, tuple(said)),) if said else ()


def batch_seed(seed: int, first: int) -> int:
    """The seed of the run that makes the drafts from number `first` on, out of the session's seed."""
    digest = hashlib.blake2b(f"{seed}/from/{first}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
