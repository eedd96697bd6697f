"""The progress of a minting session on stderr: a live block on a terminal, else a line a draft."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from itertools import groupby

from kmint_tui.cli.streams import Diagnostics
from kmint_tui.core.session_state import LiveDraft, LiveSession
from kmint_tui.events import (
    CasesDone,
    Choices,
    DraftFinished,
    Finished,
    Judged,
    MintEvent,
    Notice,
    Progress,
    RoundStarted,
    Started,
    Stopping,
    Swept,
    Tuning,
)
from kmint_tui.minting.drafts import MintDraft
from kmint_tui.minting.reasons import TEMPLATE, counted
from kmint_tui.minting.result import ranges

_REFRESH_SECONDS = 0.1


class MintProgress:
    """Shows the events of one session. With `debug` the engine's settings too."""

    def __init__(self, diagnostics: Diagnostics, *, debug: bool = False) -> None:
        self._err = diagnostics
        self._debug = debug
        self._session = LiveSession()
        self._unwritten: list[int] = []
        """Duplicates of one kernel that have no line yet."""
        self._shown = 0.0

    def show(self, event: MintEvent) -> None:
        """Apply an event to the session's state, and show its effect."""
        self._session.apply((event,))
        match event:
            case Started(session=session, request=request):
                model = request.model
                drafts = counted(request.drafts, "draft")
                self._note(f"session {session}: {drafts} of {request.op.name}, seed {request.seed}")
                self._note(f"model {model.id} ({model.file.quant}): {model.reason}")
            case DraftFinished(draft=draft) if draft.duplicate_of is not None:
                self._keep_duplicate(draft)
            case Judged(index=index, final=True) if not self._err.live:
                self._note(self._line(self._session.drafts[index]))
            case RoundStarted(round=number, parents=parents):
                self._note(
                    f"round {number}: {len(parents)} rejected drafts go back"
                    " with the referee's reasons"
                )
            case Tuning(index=index):
                self._note(f"sweeping the launch constants of #{index}")
            case Swept(sweep=sweep):
                changes = f"{sweep.changes}, " if sweep.changes else ""
                where = f" at {sweep.shape}" if sweep.shape else ""
                self._note(f"#{sweep.draft}{where}: {changes}{sweep.reason}")
            case Choices(choices=choices):
                if self._debug:
                    settings = ", ".join(f"{choice.name} {choice.value}" for choice in choices)
                    self._note(f"smith: {settings}")
            case Notice(text=text):
                self._note(text)
            case Stopping():
                self._note(
                    "stopping: kmint still judges the finished drafts;"
                    " press Ctrl-C again to stop that too"
                )
            case Finished():
                self._write_duplicates()
                self._err.clear()
                return
        self._refresh(force=not isinstance(event, Progress | CasesDone))

    def _keep_duplicate(self, draft: MintDraft) -> None:
        """Hold the line of a duplicate back: those of the same kernel share one."""
        if self._unwritten and self._original(self._unwritten[0]) != draft.duplicate_of:
            self._write_duplicates()
        if not self._err.live:
            self._unwritten.append(draft.index)

    def _line(self, row: LiveDraft) -> str:
        written = "" if self._by_template(row.index) else f" {row.tokens} tokens,"
        return f"{self._name([row.index])}:{written} {_status(row)}"

    def _note(self, text: str) -> None:
        self._write_duplicates()
        self._err.note(text)

    def _write_duplicates(self) -> None:
        """One line for all of them."""
        some, self._unwritten = self._unwritten, []
        if some:
            self._err.note(f"{self._name(some)}: {_status(self._session.drafts[some[0]])}")

    def _name(self, indices: list[int]) -> str:
        names = ranges([index for index in indices if not self._by_template(index)], "#")
        template = TEMPLATE if any(map(self._by_template, indices)) else ""
        return ", ".join(filter(None, (names, template)))

    def _by_template(self, index: int) -> bool:
        draft = self._session.drafts[index].draft
        return draft is not None and draft.author == "template"

    def _original(self, index: int) -> int | None:
        """The draft that draft number `index` repeats."""
        draft = self._session.drafts[index].draft
        return draft.duplicate_of if draft is not None else None

    def _refresh(self, *, force: bool) -> None:
        now = time.monotonic()
        if not force and now - self._shown < _REFRESH_SECONDS:
            return
        self._shown = now
        width = max(20, shutil.get_terminal_size().columns - 1)
        lines = [line if len(line) <= width else line[: width - 1] + "…" for line in self._lines()]
        if lines:
            self._err.block(lines)

    def _lines(self) -> Iterator[str]:
        """A line for each draft that has begun; adjacent repeats of one kernel share a line."""
        begun = sorted(row.index for row in self._session.drafts.values() if row.phase != "waiting")
        for _, group in groupby(begun, key=self._line_of):
            indices = list(group)
            row = self._session.drafts[indices[0]]
            if len(indices) > 1 or self._by_template(row.index):
                yield f"  {self._name(indices)}  {_status(row)}"
            else:
                yield f"  #{row.index:<3} {row.tokens:>5} tokens  {_status(row)}"

    def _line_of(self, index: int) -> tuple[bool, int]:
        """Equal for drafts that share a line."""
        original = self._original(index)
        return original is not None, index if original is None else original


def _status(row: LiveDraft) -> str:
    """The step under way, or the verdict with its reason."""
    text = row.status("#{}".format)
    if row.verdict is None or row.phase != "judged":
        return text
    return f"{row.verdict.verdict}: {text}"
