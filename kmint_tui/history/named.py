"""Named sessions that grow draft by draft, for the kernels of an agent or of a person.

Such a session is like one of `kmint mint`: history, ranking, saving and crowns work for its drafts.
Several processes may add to one session at the same time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from kmint_tui.errors import UsageError
from kmint_tui.escapes import visible_line
from kmint_tui.history.database import transaction, translated
from kmint_tui.history.records import Draft, NewDraft, NewSession, tuned_by
from kmint_tui.history.store import PASSED, History, now
from kmint_tui.smith.canonical import canonical

MOST_NAME = 60
FROM_OUTSIDE = "drafts from outside kmint"
_NO_PROMPT = "kmint did not ask for these drafts"


def session_name(text: str) -> str:
    """A name for a session. Raises UsageError."""
    name = text.strip()
    if not name or len(name) > MOST_NAME or visible_line(name) != name:
        raise UsageError(
            f"{text[:MOST_NAME]!r} cannot name a session",
            fix=f"give 1 to {MOST_NAME} characters on one line",
        )
    return name


class NamedSessions(History):
    """The history with sessions that grow by one draft at a time."""

    def keep(
        self,
        name: str,
        op: str,
        source: str,
        *,
        settings: Mapping[str, Any],
        environment: Mapping[str, Any],
    ) -> Draft:
        """Store a kernel before its verdict, in the newest session with that name, operation and
        settings.

        Without such a session, it starts a new one. A kernel that differs from a stored one only in
        names and layout is not stored again: the result is the stored draft.
        """
        settings = {"name": session_name(name), **settings}
        with transaction(self._connection, self._path):
            session = self._named(name, op, settings)
            if session is None:
                new = NewSession(
                    op=op,
                    model=name,
                    model_file=FROM_OUTSIDE,
                    model_sha256="",
                    system="",
                    user=_NO_PROMPT,
                    seed=0,
                    wanted=0,
                    settings=settings,
                    environment=environment,
                )
                session = self._insert_session(new)
            number = self._same(session, source)
            if number is None:
                number = self._next_number(session)
                self._insert_draft(session, NewDraft.undrafted(number, source))
            self._connection.execute(
                "UPDATE sessions SET wanted ="
                " (SELECT count(*) FROM drafts WHERE session = ? AND author = 'smith'), state = "
                "'done', finished = ? WHERE id = ?",
                (session, now(), session),
            )
        return self.draft(session, number)

    def keep_tuned(self, parent: Draft, source: str, changes: str, seconds: float) -> Draft:
        """Store a kernel that the tuner made from a draft, in the draft's session, before its
        verdict.

        Its author is that of `tuned_by`. A kernel that the session has already is not stored again.
        Raises UsageError while the session runs.
        """
        author, changes = tuned_by(parent.author, parent.changes, changes)
        with transaction(self._connection, self._path):
            if self.session(parent.session).state == "running":
                raise UsageError(
                    f"session {parent.session} still runs", fix="tune its drafts when it is over"
                )
            number = self._same(parent.session, source)
            if number is None:
                number = self._next_number(parent.session)
                made = NewDraft(
                    number=number,
                    source=source,
                    seed=parent.seed,
                    temperature=parent.temperature,
                    tokens=0,
                    seconds=seconds,
                    finish="stop",
                    round=parent.round,
                    parent=parent.number,
                    author=author,
                    changes=changes,
                )
                self._insert_draft(parent.session, made)
        return self.draft(parent.session, number)

    def _named(self, name: str, op: str, settings: Mapping[str, Any]) -> int | None:
        """The newest session of that name and these settings."""
        rows: Sequence[sqlite3.Row] = self._connection.execute(
            "SELECT id FROM sessions WHERE model = ? AND model_file = ? AND op = ? ORDER BY id "
            "DESC",
            (name, FROM_OUTSIDE, op),
        ).fetchall()
        return next(
            (row["id"] for row in rows if dict(self.session(row["id"]).settings) == dict(settings)),
            None,
        )

    def _same(self, session: int, source: str) -> int | None:
        """The number of the draft that differs from `source` in names and layout at most."""
        rows = self._connection.execute(
            "SELECT d.number, t.content FROM drafts AS d JOIN texts AS t"
            " ON t.sha256 = d.source_sha256 WHERE d.session = ? ORDER BY d.number",
            (session,),
        )
        same = _canonical(source)
        return next((number for number, text in rows if _canonical(str(text)) == same), None)

    def _next_number(self, session: int) -> int:
        row = self._connection.execute(
            "SELECT max(number) FROM drafts WHERE session = ?", (session,)
        ).fetchone()
        return 0 if row[0] is None else int(row[0]) + 1

    def best(self, session: int) -> Draft | None:
        """The best correct kernel of a session: by outcome, then by ratio, then by length."""
        with translated(self._path):
            rows = self._connection.execute(
                "SELECT d.outcome, d.ratio, length(t.content), d.number FROM drafts AS d"
                " JOIN texts AS t ON t.sha256 = d.source_sha256 WHERE d.session = ?",
                (session,),
            ).fetchall()
        passed = [
            (PASSED.index(outcome), -(ratio or 0.0), length, number)
            for outcome, ratio, length, number in rows
            if outcome in PASSED
        ]
        return self.draft(session, min(passed)[3]) if passed else None


@lru_cache(maxsize=4096)
def _canonical(source: str) -> str:
    """Cached: a session of many drafts is compared with each new one."""
    return canonical(source)
