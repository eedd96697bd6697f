"""A finished draft: the kernel source cut from one answer of the smith, and what is known of how it came about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kmint_tui.history.records import Author
from kmint_tui.smith.canonical import canonical
from kmint_tui.smith.events import DraftDone
from kmint_tui.smith.extract import Finish, extract


@dataclass(frozen=True)
class Draft:
    """One draft. `truncated` means that the token limit cut the kernel itself off; `duplicate_of` is another's index.

    `parent` is the draft that this one repairs, in `round` 1 or later, or whose launch constants the tuner changed; what it
    changed is in `changes`.
    """

    index: int
    source: str
    tokens: int
    seconds: float
    finish: Finish
    seed: int
    temperature: float
    truncated: bool = False
    notes: tuple[str, ...] = ()
    duplicate_of: int | None = None
    round: int = 0
    parent: int | None = None
    author: Author = "smith"
    changes: str = ""

    def to_json(self, verdict: Mapping[str, Any] | None) -> dict[str, Any]:
        """The draft's part of a `kmint.mint/1` document."""
        return {
            "index": self.index,
            "source": self.source,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 3),
            "finish": self.finish,
            "truncated": self.truncated,
            "seed": self.seed,
            "temperature": self.temperature,
            "duplicate_of": self.duplicate_of,
            "round": self.round,
            "parent": self.parent,
            "author": self.author,
            "changes": self.changes,
            "verdict": verdict,
        }


class DraftBook:
    """Turns the smith's answers into drafts and recognises the ones that are the same kernel again."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}

    def add(self, done: DraftDone) -> Draft:
        """The draft of one answer. A cancelled draft is unfinished, so it is never the same as another."""
        cut = extract(done.text, done.finish)
        duplicate_of = self._known(cut.source, done.draft) if done.finish != "cancelled" else None
        notes = (*cut.notes, done.note) if done.note else cut.notes
        return Draft(
            index=done.draft,
            source=cut.source,
            tokens=done.tokens,
            seconds=done.seconds,
            finish=done.finish,
            seed=done.seed,
            temperature=done.temperature,
            truncated=cut.truncated,
            notes=notes,
            duplicate_of=duplicate_of,
        )

    def add_tuned(self, draft: Draft) -> Draft:
        """A draft of the tuner, told apart from the smith's."""
        return replace(draft, duplicate_of=self._known(draft.source, draft.index))

    def _known(self, source: str, index: int) -> int | None:
        first = self._first.setdefault(canonical(source), index)
        return first if first != index else None
