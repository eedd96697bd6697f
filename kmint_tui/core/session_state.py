"""The state of a running session, folded from the events of the mint loop.

This is the only fold: the terminal's live block and the application both show this state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from kmint_tui.core.stages import STAGES, Mark, marks
from kmint_tui.events import (
    CasesDone,
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
from kmint_tui.history.verdicts import device_microseconds, ratio
from kmint_tui.minting import reasons
from kmint_tui.minting.drafts import MintDraft
from kmint_tui.minting.request import MintRequest
from kmint_tui.minting.result import MintResult, best, rank
from referee.verdict import Verdict

Phase = Literal[
    "waiting",
    "writing",
    "queued",
    "judging",
    "judged",
    "to be timed",
    "being tuned",
    "same",
    "stopped",
]


LEAST_SHOWN_SECONDS = 2.0


@dataclass
class LiveDraft:
    """The state of one draft; `tokens` counts the tokens written so far."""

    index: int
    tokens: int = 0
    text: str = ""
    phase: Phase = "waiting"
    draft: MintDraft | None = None
    verdict: Verdict | None = None
    parent: int | None = None
    cases: str = ""
    """The number of test cases that are done, in words; empty where the referee counts none."""
    judged_since: float | None = None
    """Seconds of the session's clock at which the referee began; None before."""

    @property
    def source(self) -> str:
        """The finished kernel, else the text that the smith has written so far."""
        return self.draft.source if self.draft is not None else self.text

    @property
    def stage_marks(self) -> tuple[Mark, ...]:
        """One mark for each stage of the referee."""
        if self.phase == "judging" and self.verdict is None:
            return tuple[Mark, ...](["busy"] * len(STAGES))
        return (
            marks(self.verdict.verdict, self.verdict.stage) if self.verdict else marks(None, None)
        )

    @property
    def microseconds(self) -> float | None:
        """Device time in microseconds; None where it was not timed."""
        return device_microseconds(self.verdict.timing) if self.verdict else None

    @property
    def ratio(self) -> float | None:
        """Time of the fastest baseline over the kernel's own; None where it was not timed."""
        return ratio(self.verdict.timing) if self.verdict else None

    @property
    def brief(self) -> str:
        """`why` in a few words, for a table."""
        return "; ".join(filter(None, (self._origin(), self.status())))

    @property
    def why(self) -> str:
        """The origin of the draft, and the step under way or the reason for the verdict."""
        return "; ".join(filter(None, (self._origin(), self.status(long=True))))

    @property
    def by_smith(self) -> bool:
        """True for a draft of the smith, False for one of the template or the tuner."""
        return self.draft is None or self.draft.author == "smith"

    def status(self, name: Callable[[int], str] = "draft {}".format, *, long: bool = False) -> str:
        """The step under way, or the reason for the verdict; `name` gives the text for an index."""
        if self.phase == "same" and self.draft is not None:
            return reasons.outcome(self.draft, None, name)
        if self.verdict is None or self.draft is None:
            words = {"queued": "waiting for the referee", "judging": f"being judged{self.cases}"}
            return words.get(self.phase, self.phase)
        if self.phase == "to be timed":
            return "correct, to be timed when the smith has finished"
        text = reasons.outcome(self.draft, self.verdict, name, long)
        return f"trying other launch constants; {text}" if self.phase == "being tuned" else text

    def _origin(self) -> str:
        if self.draft is not None:
            return reasons.origin(self.draft, "draft {}".format)
        return f"repairs draft {self.parent}" if self.parent is not None else ""


@dataclass
class LiveSession:
    """The state of the session that runs or that has just ended."""

    clock: Callable[[], float] = time.monotonic
    request: MintRequest | None = None
    session: int | None = None
    drafts: dict[int, LiveDraft] = field(default_factory=dict)
    stopping: bool = False
    result: MintResult | None = None

    def apply(self, events: Iterable[MintEvent]) -> set[int]:
        """Apply events; returns the indices of the drafts that they change."""
        changed: set[int] = set()
        for event in events:
            changed |= self._apply(event)
        return changed

    @property
    def best(self) -> int | None:
        """The best draft so far; None while no kernel passed."""
        finished = [row.draft for row in self.drafts.values() if row.draft is not None]
        verdicts = {
            index: row.verdict for index, row in self.drafts.items() if row.verdict is not None
        }
        return best(rank(finished, verdicts), verdicts)

    @property
    def passed(self) -> int:
        """Number of the smith's correct drafts; a duplicate counts like the draft that it repeats."""
        found = (self._verdict_of(row) for row in self.drafts.values() if row.by_smith)
        return sum(verdict is not None and verdict.passed for verdict in found)

    def _verdict_of(self, row: LiveDraft) -> Verdict | None:
        if row.draft is not None and row.draft.duplicate_of is not None:
            row = self.drafts.get(row.draft.duplicate_of, row)
        return row.verdict

    @property
    def doing(self) -> str:
        """The parts of kmint that work now, as in "smith and referee at work"; else empty."""
        if self.request is None or self.result is not None:
            return ""
        phases = {row.phase for row in self.drafts.values()}
        writing = bool(phases & {"waiting", "writing"}) and not self.stopping
        judging = bool(phases & {"queued", "judging", "to be timed"})
        tuning = "being tuned" in phases
        parts = [
            name
            for name, busy in (("smith", writing), ("referee", judging), ("tuner", tuning))
            if busy
        ]
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
                row.phase = (
                    "stopped"
                    if draft.finish == "cancelled"
                    else "same"
                    if draft.duplicate_of is not None
                    else "queued"
                )
                return {draft.index}
            case Judging(index=index):
                row = self._row(index)
                row.phase, row.judged_since = "judging", self.clock()
                return {index}
            case CasesDone(index=index, done=done, total=total):
                row = self._row(index)
                row.cases = f", {done} of {total} cases{self._remaining(row, done, total)}"
                return {index}
            case Judged(index=index, verdict=verdict, final=final):
                row = self._row(index)
                row.verdict, row.phase = verdict, "judged" if final else "to be timed"
                return {index}
            case Tuning(index=index):
                self._row(index).phase = "being tuned"
                return {index}
            case Swept():
                tuned = [row for row in self.drafts.values() if row.phase == "being tuned"]
                for row in tuned:
                    row.phase = "judged"
                return {row.index for row in tuned}
            case Stopping():
                self.stopping = True
            case Finished(result=result):
                self.result = result
                for row in self.drafts.values():
                    if (
                        row.phase in ("waiting", "writing", "queued", "judging")
                        and row.verdict is None
                    ):
                        row.phase = "stopped"
                return set(self.drafts)
        return set()

    def _remaining(self, row: LiveDraft, done: int, total: int) -> str:
        """The time for the other cases, at the pace of those that are done."""
        if row.judged_since is None or not done:
            return ""
        seconds = (self.clock() - row.judged_since) / done * (total - done)
        return f", about {seconds:.0f} s left" if seconds >= LEAST_SHOWN_SECONDS else ""

    def _row(self, index: int) -> LiveDraft:
        return self.drafts.setdefault(index, LiveDraft(index))
