"""The drafts of a book: one thread asks the embedded smith for one operation after the other.

The smith drafts on the processor, so that the GPU can time meanwhile. Its seed is fixed: a build
that begins again gets the same drafts. Drafts that the history has are not made again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kmint_tui.core.book.contest import Contender
from kmint_tui.core.book.planning import Work
from kmint_tui.core.planning import MintOptions
from kmint_tui.core.planning import plan as plan_session
from kmint_tui.errors import KmintError
from kmint_tui.minting.drafts import DraftBook, MintDraft, template_draft
from kmint_tui.minting.resuming import draft_of
from kmint_tui.models.store import EMBEDDED
from kmint_tui.smith.events import DraftDone, Failed

if TYPE_CHECKING:
    from kmint_tui.history.records import NewSession, Session
    from kmint_tui.history.store import History
    from kmint_tui.minting.drafting import Drafter
    from kmint_tui.minting.request import MintRequest

SEED = 1
LEAD = 24
"""Operations that are drafted ahead of the contests."""
END_SECONDS = 10.0
BOOK = "book"
"""The setting of a session that marks it as a build's, with the device."""


@dataclass(frozen=True)
class Drafted:
    """The drafts of one operation, with the template's kernel last; or the error instead.

    `session` is the number of an earlier run's session, None where the drafts are new.
    """

    work: Work
    request: MintRequest | None = None
    drafts: tuple[MintDraft, ...] = ()
    session: int | None = None
    error: Exception | None = None

    def contenders(self) -> dict[int, Contender]:
        """The kernels of the contest by their draft's number; equal kernels once."""
        assert self.request is not None
        model, sha256 = self.request.model.id, self.request.model_sha256
        return {
            draft.index: Contender(
                source=draft.source,
                author=draft.author,
                smith=model if draft.author == "smith" else "",
                smith_sha256=sha256 if draft.author == "smith" else "",
            )
            for draft in self.drafts
            if draft.duplicate_of is None and draft.source
        }


class Drafting:
    """The thread of the drafts. `put` gets a `Drafted` for each piece of work, in their order.

    `known` has the drafts of earlier runs. `more` allows one more operation ahead.
    """

    def __init__(
        self,
        smith: Drafter,
        work: Sequence[Work],
        drafts: int,
        known: Mapping[str, tuple[Session, tuple[MintDraft, ...]]],
        put: Callable[[Drafted], object],
    ) -> None:
        self._smith, self._work, self._drafts = smith, work, drafts
        self._known, self._put = known, put
        self._stopped = threading.Event()
        self._room = threading.Semaphore(LEAD)
        self._thread = threading.Thread(target=self._run, name="book-drafts", daemon=True)

    def start(self) -> None:
        """Begin to draft."""
        self._thread.start()

    def more(self) -> None:
        """A contest has ended."""
        self._room.release()

    def stop(self) -> None:
        """Draft no more; the thread ends soon."""
        self._stopped.set()
        self._room.release()
        self._smith.cancel()
        self._thread.join(END_SECONDS)

    def _run(self) -> None:
        for work in self._work:
            self._room.acquire()
            if self._stopped.is_set():
                return
            try:
                found = self._one(work)
            except Exception as error:
                found = Drafted(work, error=error)
            self._put(found)

    def _one(self, work: Work) -> Drafted:
        request = requested(work, self._drafts)
        known = self._known.get(work.op.name)
        if known is not None and _is_of(known[0], request):
            return Drafted(work, request, known[1], known[0].id)
        book = DraftBook(request.drafted_stage)
        found: list[MintDraft] = []
        for event in self._smith.draft(
            request.prompt,
            request.drafts,
            sampling=request.sampling,
            seed=request.seed,
            max_tokens=request.max_tokens,
        ):
            if isinstance(event, DraftDone):
                found.append(book.add(event))
            elif isinstance(event, Failed):
                raise KmintError(event.reason, title="the smith failed")
        found.sort(key=lambda draft: draft.index)
        if request.program is not None:
            found.append(book.add_own(template_draft(request, len(found))))
        return Drafted(work, request, tuple(one for one in found if one.finish != "cancelled"))


def requested(work: Work, drafts: int) -> MintRequest:
    """The request of one operation's drafts. Raises KmintError."""
    options = MintOptions(op=work.op.name, model=EMBEDDED, drafts=drafts, shapes=work.shapes)
    return replace(plan_session(options, draw_seed=lambda: SEED), task=work.task)


def new_session(drafted: Drafted, device: str) -> NewSession:
    """The row of the history for new drafts."""
    assert drafted.request is not None
    session = drafted.request.to_session()
    return replace(session, settings={**session.settings, BOOK: device})


def drafted_before(
    history: History, op: str, drafts: int
) -> tuple[Session, tuple[MintDraft, ...]] | None:
    """The newest session of an earlier build with all drafts of this operation."""
    for summary in history.summaries(op=op, limit=8):
        if summary.wanted != drafts or summary.state == "running":
            continue
        session = history.session(summary.id, whole=False)
        if BOOK not in session.settings:
            continue
        # Kernels with changes were made in the contest.
        rows = [row for row in history.drafts(summary.id) if not row.changes]
        authors = [row.author for row in rows]
        # The template's kernel is stored last.
        if authors.count("smith") == drafts and "template" in authors:
            return session, tuple(map(draft_of, rows))
    return None


def _is_of(session: Session, request: MintRequest) -> bool:
    """Whether the session's drafts are those that this request would give."""
    return (session.model_sha256, session.user) == (request.model_sha256, request.prompt.user)
