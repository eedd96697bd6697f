"""Sessions of `kmint tune`: the kernels that it starts from, and the winners of its races.

A session belongs to one draft or session and to its shapes. The same request opens it again, so
that an interrupted tune goes on with the verdicts that are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kmint_tui.history.database import transaction, translated
from kmint_tui.history.named import NamedSessions
from kmint_tui.history.records import Author, Draft, NewDraft, NewSession, Session
from kmint_tui.history.store import now

TUNED = "tuned"
"""Setting of a session of the tuner: the id of the draft or session that it starts from."""


class TunedSessions(NamedSessions):
    """The history with sessions of the tuner."""

    def open(self, parent: Session, settings: Mapping[str, Any], environment: Any) -> int:
        """The newest session with these settings, else a new one. Returns its id."""
        with translated(self._path):
            rows = self._connection.execute(
                "SELECT id FROM sessions WHERE model = ? AND op = ? ORDER BY id DESC",
                (parent.model, parent.op),
            ).fetchall()
        known = (row["id"] for row in rows)
        found = next((one for one in known if dict(self.session(one).settings) == settings), None)
        if found is not None:
            return int(found)
        new = NewSession(
            op=parent.op,
            model=parent.model,
            model_file=parent.model_file,
            model_sha256=parent.model_sha256,
            system=parent.system,
            user=parent.user,
            seed=parent.seed,
            wanted=0,
            settings=settings,
            environment=environment,
        )
        number = self.begin(new)
        with transaction(self._connection, self._path):
            # It grows draft by draft, like a named session, and is never cut short.
            self._connection.execute(
                "UPDATE sessions SET state = 'done', finished = ? WHERE id = ?", (now(), number)
            )
        return number

    def keep_copy(self, session: int, draft: Draft) -> Draft:
        """The draft as one of this session; stored unless an equal kernel is there."""
        author = self._author(draft)
        with transaction(self._connection, self._path):
            number = self._same(session, draft.source)
            if number is None:
                number = self._next_number(session)
                names = ("source", "seed", "temperature", "tokens", "seconds", "finish")
                values = {name: getattr(draft, name) for name in names}
                changes = draft.changes if author == "template" else ""
                made = NewDraft(number=number, author=author, changes=changes, **values)
                self._insert_draft(session, made)
        return self.draft(session, number)

    def keep_written(self, session: int, source: str, structure: str) -> Draft:
        """A kernel of the template in this structure; stored unless an equal kernel is there."""
        with transaction(self._connection, self._path):
            number = self._same(session, source)
            if number is None:
                number = self._next_number(session)
                made = NewDraft.undrafted(number, source, author="template", changes=structure)
                self._insert_draft(session, made)
        return self.draft(session, number)

    def _author(self, draft: Draft) -> Author:
        """The author; a tuner's kernel has no parent in another session, so it is its parent's."""
        while draft.author == "tuner" and draft.parent is not None:
            draft = self.draft(draft.session, draft.parent)
        return "smith" if draft.author == "tuner" else draft.author
