"""What is going on while kernels are minted, on stderr: a live block on a terminal, a line a draft elsewhere."""

from __future__ import annotations

import shutil
import time

from kmint_tui.cli.diagnostics import Diagnostics
from kmint_tui.cli.referee import why
from kmint_tui.events import (
    Choices,
    DraftFinished,
    Finished,
    Judged,
    Judging,
    MintEvent,
    Notice,
    Progress,
    RoundStarted,
    Started,
    Stopping,
    Swept,
    Tuning,
)

_REFRESH_SECONDS = 0.1


class MintProgress:
    """Shows the events of one session as they come."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._err = diagnostics
        self._tokens: dict[int, int] = {}
        self._states: dict[int, str] = {}
        self._shown = 0.0

    def show(self, event: MintEvent) -> None:
        """Take note of an event and show what it changes."""
        match event:
            case Started(session=session, request=request):
                model = request.model
                drafts = f"{request.drafts} draft{'s' if request.drafts > 1 else ''}"
                self._err.note(f"session {session}: {drafts} of {request.op.name}, seed {request.seed}")
                self._err.note(f"model {model.id} ({model.file.quant}): {model.reason}")
            case Progress(index=index, tokens=tokens):
                self._tokens[index] = tokens
                self._states.setdefault(index, "drafting")
                self._refresh(force=False)
            case DraftFinished(draft=draft):
                self._tokens[draft.index] = draft.tokens
                same = f"the same as #{draft.duplicate_of}" if draft.duplicate_of is not None else ""
                self._set(draft.index, same or ("stopped" if draft.finish == "cancelled" else "waiting for the referee"), line=bool(same))
            case Judging(index=index):
                self._set(index, "being judged")
            case Judged(index=index, verdict=verdict, final=final):
                self._set(index, f"{verdict.verdict}: {why(verdict)}" if final else f"{verdict.verdict}, to be timed", line=final)
            case RoundStarted(round=number, parents=parents):
                self._err.note(f"round {number}: {len(parents)} rejected drafts go back with the referee's reasons")
                self._refresh(force=True)
            case Tuning(index=index):
                self._err.note(f"sweeping the launch constants of #{index}")
                self._refresh(force=True)
            case Swept(sweep=sweep):
                self._err.note(f"#{sweep.draft}: {sweep.changes + ', ' if sweep.changes else ''}{sweep.reason}")
                self._refresh(force=True)
            case Choices(choices=choices):
                self._err.hint("smith: " + ", ".join(f"{choice.name} {choice.value}" for choice in choices))
                self._refresh(force=True)
            case Notice(text=text):
                self._err.note(text)
                self._refresh(force=True)
            case Stopping():
                self._err.note("stopping: finished drafts are still judged; press Ctrl-C again to give that up too")
                self._refresh(force=True)
            case Finished():
                self._err.clear()

    def _set(self, index: int, state: str, *, line: bool = False) -> None:
        self._states[index] = state
        if self._err.live:
            self._refresh(force=True)
        elif line:
            self._err.note(f"#{index}: {self._tokens.get(index, 0)} tokens, {state}")

    def _refresh(self, *, force: bool) -> None:
        now = time.monotonic()
        if not force and now - self._shown < _REFRESH_SECONDS:
            return
        self._shown = now
        width = max(20, shutil.get_terminal_size().columns - 1)
        lines = [f"  #{index:<3} {self._tokens.get(index, 0):>5} tokens  {state}" for index, state in sorted(self._states.items())]
        self._err.block([line if len(line) <= width else line[: width - 1] + "…" for line in lines])
