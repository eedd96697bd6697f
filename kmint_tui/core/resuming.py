"""`kmint mint --resume`: from a stored session to the options and results with which it goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NotRequired, TypedDict

from kmint_tui import paths
from kmint_tui.core.planning import MintOptions
from kmint_tui.core.rejudge import in_catalogue
from kmint_tui.errors import UsageError
from kmint_tui.history.reading import read_history
from kmint_tui.history.records import Session, parse_id
from kmint_tui.minting.request import MintRequest, Until, inputs_of
from kmint_tui.minting.resuming import Resumed, resumed
from kmint_tui.models.registry import Dialect
from kmint_tui.typed import Mistyped, typed

if TYPE_CHECKING:
    from referee.reference.asked import Asked

_TITLE = "session cannot go on"


class _Settings(TypedDict):
    """The settings of a session of `kmint mint`, as far as its options need them."""

    temperature: float
    top_p: float
    max_tokens: int
    until: Until
    target: str | None
    repair: int
    tune: bool
    dialect: Dialect
    template: bool
    shapes: NotRequired[list[str]]
    endpoints: NotRequired[list[str]]


@dataclass(frozen=True)
class GoesOn:
    """A stored session, its options, and its results so far."""

    session: Session
    options: MintOptions
    earlier: Resumed

    @property
    def words(self) -> str:
        """What the history has, in one line."""
        drafts, verdicts = len(self.earlier.drafts), len(self.earlier.verdicts)
        return f"session {self.session.id} goes on with {drafts} drafts and {verdicts} verdicts"

    def check(self, request: MintRequest) -> None:
        """Raise UsageError where the request would no longer be that of the session."""
        new, session = request.to_session(), self.session
        names = ("op", "model_sha256", "system", "user", "seed", "wanted")
        changed = [name for name in names if getattr(new, name) != getattr(session, name)]
        before = session.settings
        changed += [
            name
            for name, value in new.settings.items()
            if name != "endpoints" and _plain(value) != _plain(before.get(name))
        ]
        if changed:
            raise UsageError(
                f"session {session.id} was begun with another {', '.join(changed)}",
                title=_TITLE,
                fix="begin a new session; the drafts of this one stay in the history",
            )


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def goes_on(wanted: str, *, models: tuple[str, ...] = (), reference: Asked | None = None) -> GoesOn:
    """The session of the id `wanted`, with the options that it was begun with.

    `models` replaces the smith's addresses. `reference` is the function of a session of an own one;
    its inputs are those of the session. Raises UsageError and the errors of the history.
    """
    where = parse_id(wanted)
    if where.number is not None:
        raise UsageError(
            f"{wanted} is a draft, and a session goes on", fix=f"--resume {where.session}"
        )
    with read_history(paths.history_file()) as history:
        session = history.session(where.session)
        rows = history.drafts(where.session)
    settings = _settings(session)
    own = not in_catalogue(session.op)
    if own and reference is None:
        raise UsageError(
            f"{session.op} of session {session.id} is an own function",
            title=_TITLE,
            fix="add --reference FILE.py:function",
        )
    if reference is not None:
        reference = reference.remembering(*inputs_of(session))
    smiths = models or tuple(settings.get("endpoints", ())) or (session.model,)
    options = MintOptions(
        op=None if own else session.op,
        reference=reference,
        model=smiths[0],
        more=smiths[1:],
        drafts=session.wanted,
        seed=session.seed,
        temperature=settings["temperature"],
        top_p=settings["top_p"],
        max_tokens=settings["max_tokens"],
        until=settings["until"],
        target=settings["target"],
        dialect=settings["dialect"],
        repair=settings["repair"],
        tune=settings["tune"],
        template=settings["template"],
        shapes=tuple(settings.get("shapes", ())),
    )
    try:
        return GoesOn(session, options, resumed(session.id, rows))
    except Mistyped as error:
        raise UsageError(str(error), title=_TITLE) from error


def _settings(session: Session) -> _Settings:
    """The settings of a session that `kmint mint` made. Raises UsageError for any other."""
    from kmint_tui.core.book.drafting import BOOK

    try:
        found: _Settings = typed(dict(session.settings), _Settings, "its settings")
        if BOOK in session.settings:
            raise Mistyped("`kmint book build` made it")
    except Mistyped as error:
        raise UsageError(
            f"session {session.id} was not made by `kmint mint`: {error}",
            title=_TITLE,
            fix="`kmint history` lists the sessions",
        ) from error
    return found
