"""What a session came to: its drafts, their verdicts, the ranking and the best of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kmint_tui.history.records import State, draft_id
from kmint_tui.minting.drafts import Draft
from kmint_tui.minting.request import MintRequest
from kmint_tui.minting.tuning import Sweep
from referee.verdict import Verdict

SCHEMA = "kmint.mint/1"


@dataclass(frozen=True)
class MintResult:
    """The outcome of one session; `drafts` in the order of their numbers, `ranking` the indices in the order to show them.

    `sweep` is what the tuner found, None where it was not asked for or there was nothing to tune.
    """

    request: MintRequest
    session: int
    state: State
    drafts: tuple[Draft, ...]
    verdicts: Mapping[int, Verdict]
    ranking: tuple[int, ...]
    best: int | None
    seconds: float
    sweep: Sweep | None = None

    @property
    def best_id(self) -> str | None:
        """The history id of the best draft."""
        return None if self.best is None else draft_id(self.session, self.best)

    @property
    def passed(self) -> int:
        """How many drafts are correct kernels, duplicates counted like the draft they repeat."""
        return sum(1 for draft in self.drafts if (verdict := self.verdict_of(draft)) is not None and verdict.passed)

    def verdict_of(self, draft: Draft) -> Verdict | None:
        """The verdict on a draft, or on the one it repeats."""
        return self.verdicts.get(draft.index if draft.duplicate_of is None else draft.duplicate_of)

    def to_json(self) -> dict[str, Any]:
        """The `kmint.mint/1` document."""
        documents = {index: verdict.to_json() for index, verdict in self.verdicts.items()}
        return {
            "schema": SCHEMA,
            "op": self.request.op.name,
            "model": self.request.model.id,
            "model_sha256": self.request.model_sha256,
            "model_reason": self.request.model.reason,
            "seed": self.request.seed,
            "state": self.state,
            "seconds": round(self.seconds, 3),
            "rounds": 1 + max((draft.round for draft in self.drafts), default=0),
            "drafts": [draft.to_json(documents.get(draft.index)) for draft in self.drafts],
            "ranking": list(self.ranking),
            "best": self.best,
            "tuning": self.sweep.to_json() if self.sweep is not None else None,
            "history_id": str(self.session),
        }
