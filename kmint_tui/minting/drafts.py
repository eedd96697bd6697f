"""A finished draft: the kernel's source from one answer of the smith, and its origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kmint_tui.history.records import Author
from kmint_tui.smith.canonical import canonical
from kmint_tui.smith.events import DraftDone
from kmint_tui.smith.extract import Finish, extract
from kmint_tui.smith.taught import taught
from kmint_tui.template.write import program_source

if TYPE_CHECKING:
    from kmint_tui.graph.program import Program
    from kmint_tui.minting.request import MintRequest


@dataclass(frozen=True)
class MintDraft:
    """One draft. `truncated` is True where the token limit cut the kernel off.

    `duplicate_of` is the index of an equal draft. `parent` is the draft that this one repairs, or
    the one that the tuner changed by `changes`. `author` wrote the kernel. `seconds` is the time of
    drafting.
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


def template_draft(request: MintRequest, index: int) -> MintDraft:
    """The kernel that kmint writes itself for a request with a program."""
    assert request.program is not None
    return MintDraft(
        index,
        program_source(request.program),
        0,
        0.0,
        "stop",
        request.seed,
        request.sampling.temperature,
        author="template",
    )


class DraftBook:
    """Turns the smith's answers into drafts and recognises repeated kernels.

    With a `program` an answer is the kernel of its main stage, and kmint writes the rest of the
    file.
    """

    def __init__(self, program: Program | None = None) -> None:
        self._program = program
        self._taught = None if program is None else taught(program.stages[program.main])
        self._first: dict[str, int] = {}

    def add(self, done: DraftDone) -> MintDraft:
        """The draft of one answer. A cancelled draft is unfinished, so it repeats no other."""
        cut = extract(done.text, done.finish)
        if self._program is not None and self._taught is not None and cut.source:
            launched = self._taught.launched(self._program)
            answer = self._taught.restored(cut.source)
            cut = replace(cut, source=program_source(launched, {self._program.main: answer}))
        duplicate_of = self._known(cut.source, done.draft) if done.finish != "cancelled" else None
        notes = (*cut.notes, done.note) if done.note else cut.notes
        return MintDraft(
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

    def add_own(self, draft: MintDraft) -> MintDraft:
        """A draft of the template or the tuner, compared with the others."""
        return replace(draft, duplicate_of=self._known(draft.source, draft.index))

    def remember(self, draft: MintDraft) -> None:
        """Let later drafts be compared with this one of the history."""
        if draft.finish != "cancelled" and draft.duplicate_of is None:
            self._known(draft.source, draft.index)

    def _known(self, source: str, index: int) -> int | None:
        first = self._first.setdefault(canonical(source), index)
        return first if first != index else None
