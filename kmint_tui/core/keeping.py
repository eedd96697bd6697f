"""`--keep NAME`: a judged file becomes a draft of a session in the history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kmint_tui import paths
from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from kmint_tui.history.named import NamedSessions
    from referee.problem import TaskName
    from referee.verdict import Verdict

_LEVELS = ("correct", "full")


@dataclass(frozen=True)
class Kept:
    """The id of a kept draft, and that of the best draft of its session."""

    draft: str
    best: str | None

    @property
    def text(self) -> str:
        """Both in one line."""
        if self.best is None:
            return f"kept as draft {self.draft}; none passes yet"
        return f"kept as draft {self.draft}; the best so far" + (
            "" if self.best == self.draft else f" is {self.best}"
        )


class Keeper:
    """Keeps kernels in the session of one name; opens the history at the first kernel."""

    def __init__(self, name: str, level: str) -> None:
        """Raises UsageError for a name that is not allowed, and for a level below "correct"."""
        from kmint_tui.history.named import session_name

        self._name = session_name(name)
        self._held: NamedSessions | None = None
        if level not in _LEVELS:
            what = f"--keep needs a verdict that says whether a kernel is right, and --level {level} does not"
            raise UsageError(what, fix="leave out --level")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the history open meanwhile, for many kernels from one thread."""
        from kmint_tui.history.named import NamedSessions

        with NamedSessions(paths.history_file()) as self._held:
            try:
                yield
            finally:
                self._held = None

    @contextmanager
    def _opened(self) -> Iterator[NamedSessions]:
        from kmint_tui.history.named import NamedSessions

        if self._held is not None:
            yield self._held
            return
        with NamedSessions(paths.history_file()) as sessions:
            yield sessions

    def before(self, source: str, op: str, task: str | TaskName) -> str:
        """Store a kernel before it is judged; returns its id."""
        from kmint_tui.minting.request import environment

        settings = (
            {}
            if isinstance(task, str)
            else {name: list(getattr(task, name)) for name in ("inputs", "fixed", "shapes")}
        )
        with self._opened() as sessions:
            return sessions.keep(
                self._name, op, source, settings=settings, environment=environment()
            ).id

    def stored(self, draft: str) -> tuple[Mapping[str, Any] | None, Kept]:
        """The verdict of an earlier run as its document, or None."""
        from kmint_tui.history.records import parse_id

        where = parse_id(draft)
        assert where.number is not None
        with self._opened() as sessions:
            best = sessions.best(where.session)
            document = sessions.draft(where.session, where.number).verdict
        return document, Kept(draft, best.id if best else None)

    def after(self, draft: str, verdict: Verdict) -> Kept:
        """Store the verdict over an earlier one. A verdict of "error" says nothing about the kernel
        and is not stored.
        """
        from kmint_tui.history.records import parse_id
        from kmint_tui.history.verdicts import ratio

        where = parse_id(draft)
        assert where.number is not None
        with self._opened() as sessions:
            if verdict.verdict != "error":
                sessions.set_verdict(
                    where.session, where.number, verdict.to_json(), ratio=ratio(verdict.timing)
                )
            best = sessions.best(where.session)
        return Kept(draft, best.id if best else None)
