"""The state of a running session, folded from the mint loop's events; the interface shows this and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from kmint_tui.cli.referee import device_microseconds
from kmint_tui.events import (
    DraftFinished,
    Finished,
    Judged,
    Judging,
    MintEvent,
    Progress,
    RoundStarted,
    Started,
    Stopping,
    Swept,
    Tuning,
)
from kmint_tui.history.records import draft_id
from kmint_tui.minting.drafts import Draft
from kmint_tui.minting.ranking import best, rank, ratio
from kmint_tui.minting.request import MintRequest
from kmint_tui.minting.result import MintResult
from kmint_tui.workbench.stages import STAGES, Mark, marks, why
from referee.verdict import Verdict

Phase = Literal["waiting", "writing", "queued", "judging", "judged", "to be timed", "being tuned", "same", "stopped"]


@dataclass
class LiveDraft:
    """One draft of the session as far as it is known."""

    index: int
    tokens: int = 0
    text: str = ""
    phase: Phase = "waiting"
    draft: Draft | None = None
    verdict: Verdict | None = None
    parent: int | None = None

    @property
    def source(self) -> str:
        """The kernel where the draft is finished, else what the smith has written so far."""
        return self.draft.source if self.draft is not None else self.text

    @property
    def stage_marks(self) -> tuple[Mark, ...]:
        """One mark a stage of the referee."""
        if self.phase == "judging" and self.verdict is None:
            return tuple[Mark, ...](["busy"] * len(STAGES))
        return marks(self.verdict.verdict, self.verdict.stage) if self.verdict else marks(None, None)

    @property
    def microseconds(self) -> float | None:
        """Device time where it was timed."""
        return device_microseconds(self.verdict.timing) if self.verdict else None

    @property
    def ratio(self) -> float | None:
        """Time of the fastest baseline over the kernel's own, where it was timed."""
        return ratio(self.verdict.timing) if self.verdict else None

    @property
    def why(self) -> str:
        """What is going on, or what the verdict rests on."""
        if self.phase == "same" and self.draft is not None:
            return f"the same kernel as draft {self.draft.duplicate_of}"
        if self.verdict is None:
            return self._made + {"queued": "waiting for the referee", "judging": "being judged"}.get(self.phase, self.phase)
        text = self._made + why({"verdict": self.verdict.verdict, "stage": self.verdict.stage, "reason": self.verdict.reason})
        if self.phase == "to be timed":
            return f"{self._made}correct, to be timed once the smith is silent"
        if self.phase == "being tuned":
            return f"its launch constants are being swept; {text}"
        if self.draft is not None and self.draft.truncated and not self.verdict.passed:
            return f"cut off after {self.draft.tokens} tokens; {text}"
        return text

    @property
    def _made(self) -> str:
        """How it came about, for a draft that is not of the first round."""
        if self.draft is not None and self.draft.author == "tuner":
            return f"tuned from {self.draft.parent} ({self.draft.changes}); "
        return f"repairs {self.parent}; " if self.parent is not None else ""


@dataclass
class LiveSession:
    """Everything known of the session under way or just ended."""

    request: MintRequest | None = None
    session: int | None = None
    drafts: dict[int, LiveDraft] = field(default_factory=dict)
    stopping: bool = False
    result: MintResult | None = None

    def apply(self, events: Iterable[MintEvent]) -> set[int]:
        """Take note of events; returns the numbers of the drafts they change."""
        changed: set[int] = set()
        for event in events:
            changed |= self._apply(event)
        return changed

    @property
    def best(self) -> int | None:
        """The best draft so far; None while no kernel passed."""
        finished = [row.draft for row in self.drafts.values() if row.draft is not None]
        verdicts = {index: row.verdict for index, row in self.drafts.items() if row.verdict is not None}
        return best(rank(finished, verdicts), verdicts)

    @property
    def passed(self) -> int:
        """Drafts that are correct kernels, counted without the ones that repeat another."""
        return sum(1 for row in self.drafts.values() if row.verdict is not None and row.verdict.passed)

    @property
    def doing(self) -> str:
        """Which part of kmint is at work: the smith, the referee, both, or neither (an empty text)."""
        if self.request is None or self.result is not None:
            return ""
        phases = {row.phase for row in self.drafts.values()}
        writing = bool(phases & {"waiting", "writing"}) and not self.stopping
        judging = bool(phases & {"queued", "judging", "to be timed"})
        tuning = "being tuned" in phases
        parts = [name for name, busy in (("smith", writing), ("referee", judging), ("tuner", tuning)) if busy]
        return f"{' and '.join(parts)} at work" if parts else ""

    def id_of(self, index: int) -> str | None:
        """The history id of a draft; None while it is not stored."""
        row = self.drafts.get(index)
        if self.session is None or row is None or row.draft is None:
            return None
        return draft_id(self.session, index)

    def _apply(self, event: MintEvent) -> set[int]:
        match event:
            case Started(session=session, request=request):
                self.session, self.request = session, request
                self.drafts = {index: LiveDraft(index) for index in range(request.drafts)}
                return set(self.drafts)
            case RoundStarted(parents=parents):
                for index, parent in parents.items():
                    self._row(index).parent = parent
                return set(parents)
            case Progress(index=index, tokens=tokens, text=text):
                row = self._row(index)
                row.tokens, row.text, row.phase = tokens, row.text + text, "writing"
                return {index}
            case DraftFinished(draft=draft):
                row = self._row(draft.index)
                row.draft, row.tokens = draft, draft.tokens
                row.phase = "stopped" if draft.finish == "cancelled" else "same" if draft.duplicate_of is not None else "queued"
                return {draft.index}
            case Judging(index=index):
                self._row(index).phase = "judging"
                return {index}
            case Judged(index=index, verdict=verdict, final=final):
                row = self._row(index)
                row.verdict, row.phase = verdict, "judged" if final else "to be timed"
                return {index}
            case Tuning(index=index):
                self._row(index).phase = "being tuned"
                return {index}
            case Swept(sweep=sweep):
                self._row(sweep.draft).phase = "judged"
                return {sweep.draft}
            case Stopping():
                self.stopping = True
            case Finished(result=result):
                self.result = result
                for row in self.drafts.values():
                    if row.phase in ("waiting", "writing", "queued", "judging") and row.verdict is None:
                        row.phase = "stopped"
                return set(self.drafts)
        return set()

    def _row(self, index: int) -> LiveDraft:
        return self.drafts.setdefault(index, LiveDraft(index))
