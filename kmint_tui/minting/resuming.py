"""A session that goes on after its process was killed: its drafts and verdicts come from the history.

Only a missing draft is made, and only a draft without a verdict is judged. A verdict of "error" says
nothing about a kernel, so its draft is judged again. After a later round it stays, because that
round was made without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kmint_tui.history.records import Draft
from kmint_tui.minting.drafting import Batch
from kmint_tui.minting.drafts import MintDraft
from kmint_tui.minting.request import Level
from kmint_tui.typed import made
from referee.verdict import Verdict


@dataclass(frozen=True)
class Resumed:
    """The finished drafts of an earlier process by number, and their verdicts.

    `session` is the session's id; None where a session begins.
    """

    session: int | None = None
    drafts: Mapping[int, MintDraft] = field(default_factory=dict)
    verdicts: Mapping[int, Verdict] = field(default_factory=dict)

    def left(self, batch: Batch) -> Batch:
        """The batch with the drafts that are still to be made."""
        missing = tuple(number for number in batch.numbers if number not in self.drafts)
        return batch if len(missing) == batch.drafts else replace(batch, left=missing)


def resumed(session: int, rows: Iterable[Draft]) -> Resumed:
    """What the history has of a session. Drafts that were cancelled are to be made again."""
    kept = [row for row in rows if row.finish != "cancelled"]
    latest = max((row.round for row in kept), default=0)
    verdicts = {
        row.number: made(Verdict, dict(row.verdict), f"the verdict of draft {row.id}")
        for row in kept
        if row.verdict is not None and (row.outcome != "error" or row.round < latest)
    }
    return Resumed(session, {row.number: draft_of(row) for row in kept}, verdicts)


def level_of(verdict: Verdict) -> Level:
    """The level at which a verdict of the history was made."""
    return "correct" if verdict.verdict == "correct" else "full"


def draft_of(row: Draft) -> MintDraft:
    """A stored draft as one of a session that runs."""
    return MintDraft(
        row.number,
        row.source,
        row.tokens,
        row.seconds,
        row.finish,
        row.seed,
        row.temperature,
        truncated=row.finish == "length",
        duplicate_of=row.duplicate_of,
        round=row.round,
        parent=row.parent,
        author=row.author,
        changes=row.changes,
    )
