"""History: every session, filtered and sorted, with the drafts of the one under the cursor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.message import Message
from textual.widgets import DataTable, Input, Static

from kmint_tui import paths
from kmint_tui.core import command_line
from kmint_tui.core.stages import SYMBOLS, marks
from kmint_tui.errors import KmintError
from kmint_tui.history.reading import read_history
from kmint_tui.history.records import Draft, Summary, parse_id
from kmint_tui.history.store import PASSED
from kmint_tui.history.transfer import remove
from kmint_tui.minting.reasons import short_reason
from kmint_tui.screens.base import ACT, VIEW, key
from kmint_tui.screens.confirm import Confirm
from kmint_tui.screens.messages import Refused, answer
from kmint_tui.screens.rejudging import RejudgingScreen
from kmint_tui.widgets.table import Table
from kmint_tui.widgets.themes import styled

EMPTY = "Nothing was minted yet. [b]1[/b] goes to Mint."
SORTS = ("newest", "operation", "correct", "ratio", "state")


class HistoryScreen(RejudgingScreen):
    """Reads the history each time it is shown."""

    mode = "history"
    CSS_PATH = "history.tcss"
    AUTO_FOCUS = "#sessions"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("slash", "filter", "Filter", "history.filter", "Show only rows with some words", VIEW, show=True),
        key("o", "sort", "Sort", "history.sort", "Sort by the next column", VIEW, show=True),
        key("s", "save", "Save", "history.save", "Save the draft under the cursor into a folder", ACT, show=True),
        key("D", "delete", "Delete", "history.delete", "Delete the session or draft; asks first", ACT, show=True),
        key("escape", "back", "Back", "history.back", "Back to the sessions", VIEW),
    ]  # fmt: skip

    @dataclass
    class Found(Message):
        """All sessions."""

        sessions: tuple[Summary, ...]

    @dataclass
    class DraftsFound(Message):
        """The drafts of a session."""

        session: int
        drafts: tuple[Draft, ...]

    def __init__(self) -> None:
        super().__init__()
        self._sessions: tuple[Summary, ...] = ()
        self._drafts: tuple[Draft, ...] = ()
        self._sort = 0
        self._session: int | None = None
        self._wanted: int | None = None

    def body(self) -> ComposeResult:
        yield Input(placeholder="words of the operation, model, state …", compact=True, id="filter")
        yield Static(EMPTY, id="empty", classes="empty")
        with Container(id="lists"):
            yield Table("sessions")
            yield Static("", id="under", markup=False)
            yield Table("drafts")

    def on_mount(self) -> None:
        self.query_one("#filter").display = False
        outcome = (("best", 8), ("correct", 7), ("drafts", 6), ("ratio", 6), ("state", 7))
        self.query_one("#sessions", Table).head(
            ("id", 4), ("operation", 26), *outcome, ("model", 16), ("started", 16)
        )
        self.query_one("#drafts", Table).head(
            ("draft", 8), ("tokens", 6), ("stages", 6), ("verdict", 10), ("ratio", 7), ("why", None)
        )

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self._read()

    def commands(self) -> list[tuple[str, str]]:
        draft, identity = self._draft, self.draft_id or self.query_one("#sessions", Table).key
        found = [("list", command_line.command("history"))]
        if identity is None:
            return found
        found.insert(0, ("show", command_line.command("history", "show", identity)))
        if draft is not None:
            found.append(("re-judge", command_line.command("history", "rejudge", draft.id)))
            if draft.outcome in PASSED:
                found.append(("save", command_line.save(draft.id, "DIR")))
        return [*found, ("delete", command_line.command("history", "rm", identity))]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "save":
            draft = self._draft
            return draft is not None and draft.outcome in PASSED
        if action in ("delete", "sort", "filter"):
            return bool(self._sessions)
        return super().check_action(action, parameters)

    def go_to(self, session: int) -> None:
        """Put the cursor on a session once the list is read."""
        self._wanted = session
        self._read()

    def chosen(self) -> Draft | None:
        return self._draft

    def judging_changed(self, title: str | None) -> None:
        self.query_one("#under", Static).update(title if title is not None else self._order())

    def judged_again(self, identity: str) -> None:
        where = parse_id(identity)
        if where.session == self._session:
            self._read_drafts(where.session)

    @property
    def draft_id(self) -> str | None:
        """The draft under the cursor while the drafts have the focus."""
        drafts = self.query("#drafts")
        return drafts.first(Table).key if drafts and self.focused is drafts.first() else None

    @property
    def _draft(self) -> Draft | None:
        return next((draft for draft in self._drafts if draft.id == self.draft_id), None)

    @work(thread=True, exclusive=True, group="history", exit_on_error=False)
    def _read(self) -> None:
        if not paths.history_file().exists():
            answer(self, self.Found(()))
            return
        try:
            with read_history(paths.history_file()) as history:
                answer(self, self.Found(history.summaries()))
        except KmintError as error:
            answer(self, Refused(error))

    @on(Found)
    def _found(self, message: Found) -> None:
        self._sessions = message.sessions
        self._list()

    def _list(self) -> None:
        wanted = self.query_one("#filter", Input).value
        sessions = listed(self._sessions, wanted, SORTS[self._sort])
        empty = self.query_one("#empty", Static)
        empty.update(
            EMPTY
            if not self._sessions
            else "No session holds these words. [b]Escape[/b] shows all."
        )
        empty.display = not sessions
        self.query_one("#lists").display = bool(sessions)
        table = self.query_one("#sessions", Table)
        table.fill(
            (
                str(session.id),
                (
                    str(session.id),
                    session.op,
                    styled(self.app, session.best or "-", session.best or ""),
                    str(session.passed),
                    f"{session.drafted}/{session.wanted}",
                    f"{session.ratio:.2f}x" if session.ratio is not None else "",
                    styled(self.app, session.state, session.state),
                    session.model,
                    session.started[:16].replace("T", " "),
                ),
            )
            for session in sessions
        )
        if self._wanted is not None:
            table.go_to(str(self._wanted))
            self._wanted = None
        if self.focused is None and sessions:
            table.focus()
        self.refresh_bindings()

    @on(DataTable.RowHighlighted, "#sessions")
    def _session_highlighted(self, event: DataTable.RowHighlighted) -> None:
        if event.row_key.value is not None:
            self._read_drafts(int(event.row_key.value))

    @work(thread=True, exclusive=True, group="drafts", exit_on_error=False)
    def _read_drafts(self, session: int) -> None:
        try:
            with read_history(paths.history_file()) as history:
                answer(self, self.DraftsFound(session, history.drafts(session)))
        except KmintError as error:
            answer(self, Refused(error))

    @on(DraftsFound)
    def _drafts_found(self, message: DraftsFound) -> None:
        self._drafts, self._session = message.drafts, message.session
        if self._judging is None:
            self.query_one("#under", Static).update(self._order())
        self.query_one("#drafts", Table).fill(
            (draft.id, self._cells(draft)) for draft in message.drafts
        )
        self.refresh_bindings()

    def _order(self) -> str:
        sort = f"sorted by {SORTS[self._sort]}"
        return (
            f"session {self._session}: {len(self._drafts)} drafts   ({sort}; enter goes in)"
            if self._session is not None
            else ""
        )

    def _cells(self, draft: Draft) -> tuple[object, ...]:
        if draft.duplicate_of is not None:
            outcome, reason = "same", f"the same kernel as {draft.session}.{draft.duplicate_of}"
        elif draft.verdict is None:
            outcome, reason = "not judged", f"ended by {draft.finish}"
        else:
            outcome, reason = draft.outcome or "", short_reason(draft.verdict)
        stage = draft.verdict.get("stage") if draft.verdict else None
        symbols = "".join(SYMBOLS[mark] for mark in marks(draft.outcome, stage))
        ratio = f"{draft.ratio:.2f}x" if draft.ratio is not None else ""
        return (
            draft.id,
            str(draft.tokens),
            symbols,
            styled(self.app, outcome, outcome),
            ratio,
            reason,
        )

    @on(Refused)
    def _refused(self, message: Refused) -> None:
        self.tell(message.error)

    @on(DataTable.RowSelected, "#sessions")
    def _session_selected(self) -> None:
        self.query_one("#drafts").focus()
        self.refresh_bindings()

    @on(DataTable.RowSelected, "#drafts")
    def _draft_selected(self, event: DataTable.RowSelected) -> None:
        if event.row_key.value is not None:
            self.kmint.open_draft(event.row_key.value)

    @on(DataTable.RowHighlighted, "#drafts")
    def _draft_highlighted(self) -> None:
        self.refresh_bindings()

    @on(Input.Changed, "#filter")
    def _filter_changed(self) -> None:
        self._list()

    @on(Input.Submitted, "#filter")
    def _filter_done(self) -> None:
        self.query_one("#sessions").focus()

    def action_filter(self) -> None:
        box = self.query_one("#filter")
        box.display = True
        box.focus()

    def action_sort(self) -> None:
        self._sort = (self._sort + 1) % len(SORTS)
        self._list()
        self.notify(f"sorted by {SORTS[self._sort]}")

    def action_back(self) -> None:
        box = self.query_one("#filter", Input)
        if self.focused is box or (box.value and self.draft_id is None):
            box.value = ""
            box.display = False
        self.query_one("#sessions").focus()
        self.refresh_bindings()

    def action_delete(self) -> None:
        key = self.draft_id or self.query_one("#sessions", Table).key
        if key is None:
            return
        session = key.partition(".")[0]
        state = next((found.state for found in self._sessions if str(found.id) == session), "")
        if state == "running" and self.kmint.run_now is not None:
            self.notify("This session is running; cancel it first.", severity="warning")
            return
        what, detail = (
            f"session {key}",
            "Its drafts, their verdicts and their sources go with it. Saved files and crowns stay.",
        )
        if self.draft_id is not None:
            what, detail = (
                f"draft {key}",
                "Its verdict and its source go with it. Saved files and crowns stay.",
            )

        def answered(yes: bool | None) -> None:
            if yes:
                self._delete(key)

        self.app.push_screen(
            Confirm(
                f"Delete {what}?", detail, "Delete", command_line.command("history", "rm", key)
            ),
            answered,
        )

    @work(thread=True, exclusive=True, group="delete", exit_on_error=False)
    def _delete(self, identity: str) -> None:
        try:
            remove(paths.history_file(), parse_id(identity))
        except KmintError as error:
            self.post_message(Refused(error))
        self.call_later(self._read)

    def action_save(self) -> None:
        if self.draft_id is not None:
            self.kmint.save_draft(self.draft_id)


def listed(sessions: Iterable[Summary], wanted: str, sort: str) -> list[Summary]:
    """The sessions that hold all the words, sorted; equal ones stay in order, the newest first."""
    words = wanted.lower().split()
    found = [session for session in sessions if all(word in _text(session) for word in words)]
    match sort:
        case "operation":
            return sorted(found, key=lambda session: session.op)
        case "correct":
            return sorted(found, key=lambda session: -session.passed)
        case "ratio":
            return sorted(found, key=lambda session: -(session.ratio or 0.0))
        case "state":
            return sorted(found, key=lambda session: session.state)
        case _:
            return sorted(found, key=lambda session: -session.id)


def _text(session: Summary) -> str:
    return f"{session.id} {session.started} {session.op} {session.model} {session.state} {session.best or ''}".lower()
