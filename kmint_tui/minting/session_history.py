"""The writes of one session to the history: the session, its drafts, their verdicts, its end."""

from __future__ import annotations

from collections.abc import Callable

from kmint_tui.errors import KmintError
from kmint_tui.history.records import NewDraft, State
from kmint_tui.history.store import History
from kmint_tui.history.verdicts import ratio
from kmint_tui.minting.drafts import MintDraft
from kmint_tui.minting.request import MintRequest
from referee.verdict import Verdict

_COLUMNS = (
    "source",
    "seed",
    "temperature",
    "tokens",
    "seconds",
    "finish",
    "duplicate_of",
    "round",
    "parent",
    "author",
    "changes",
)


class SessionHistory:
    """One session in the history. A write that fails, as on a full disk, goes to `fail`."""

    def __init__(self, history: History, fail: Callable[[Exception], None]) -> None:
        self._history = history
        self._fail = fail
        self.id = 0
        """The session's id; 0 before it has begun."""

    def begin(self, request: MintRequest, earlier: int | None) -> int:
        """Store the session, or let the one of the id `earlier` go on; returns its id.

        Raises KmintError.
        """
        if earlier is None:
            self.id = self._history.begin(request.to_session())
        else:
            self._history.reopen(earlier)
            self.id = earlier
        return self.id

    def add(self, *drafts: MintDraft) -> None:
        """Store finished drafts, all or none."""
        rows = [
            NewDraft(number=draft.index, **{name: getattr(draft, name) for name in _COLUMNS})
            for draft in drafts
        ]
        self._write(lambda: self._history.add_draft(self.id, *rows))

    def set_verdict(self, index: int, verdict: Verdict) -> None:
        """Store the verdict on a draft, over an earlier one."""
        self._write(
            lambda: self._history.set_verdict(
                self.id, index, verdict.to_json(), ratio=ratio(verdict.timing)
            )
        )

    def finish(self, state: State) -> None:
        """Store the session's end."""
        self._write(lambda: self._history.finish(self.id, state))

    def _write(self, write: Callable[[], None]) -> None:
        try:
            write()
        except KmintError as error:
            self._fail(error)
