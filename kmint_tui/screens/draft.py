"""Draft: one draft of the history with everything known of it: code, checks, cells, times, prompt,
and the way to another draft.
"""

from __future__ import annotations

from difflib import unified_diff
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, VerticalScroll
from textual.widgets import DataTable, Static, TabbedContent, TabPane

from kmint_tui import paths
from kmint_tui.core import command_line
from kmint_tui.core.shape_times import timed_at
from kmint_tui.errors import KmintError, UsageError
from kmint_tui.history.reading import read_history
from kmint_tui.history.records import Draft, Session, parse_id
from kmint_tui.history.store import PASSED
from kmint_tui.minting.reasons import cell_status, long_reason
from kmint_tui.minting.standalone import standalone
from kmint_tui.screens.base import ACT, COPY, VIEW, key
from kmint_tui.screens.confirm import Ask
from kmint_tui.screens.messages import DraftFound, Refused, answer
from kmint_tui.screens.rejudging import RejudgingScreen
from kmint_tui.widgets.bars import TimeBars
from kmint_tui.widgets.code import CodeView
from kmint_tui.widgets.spread import Spread
from kmint_tui.widgets.table import Table
from kmint_tui.widgets.themes import styled

EMPTY = "No draft is open. Open one from [b]1 Mint[/b] or [b]3 History[/b] with enter."


class DraftScreen(RejudgingScreen):
    """`show` opens a draft by its id."""

    mode = "draft"
    CSS_PATH = "draft.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("s", "save", "Save", "draft.save", "Save it into a folder", ACT, show=True),
        key("c", "claim", "Claim", "draft.claim", "Claim the crown of its operation", ACT),
        key("t", "grid", "Grid", "draft.grid", "Time it over shapes and dtypes", ACT),
        key("v", "editor", "Editor", "draft.editor", "Open the code in $EDITOR; an edited kernel can be judged", ACT),
        key("d", "diff", "Diff", "draft.diff", "Compare it with another draft", VIEW, show=True),
        key("left_square_bracket", "step(-1)", "Previous", "draft.before", "Previous draft", VIEW, show=True, shown_as="["),
        key("right_square_bracket", "step(1)", "Next", "draft.next", "Next draft", VIEW, show=True, shown_as="]"),
        key("y", "copy_code", "Copy code", "copy.code", "Copy the code", COPY),
        key("i", "copy_id", "Copy id", "copy.id", "Copy the draft's id", COPY),
        key("escape", "back", "Back", "draft.back", "Back to where the draft was opened", VIEW, show=True),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.session: Session | None = None
        self.draft: Draft | None = None
        self._siblings: tuple[Draft, ...] = ()
        self._other: str | None = None
        self._said: str | None = None

    def body(self) -> ComposeResult:
        yield Static(EMPTY, id="empty", classes="empty")
        yield Static("", id="head", markup=False)
        with Container(id="parts"):
            yield Table("siblings")
            code = CodeView(id="code", classes="pane")
            code.border_title = "code"
            yield code
            with TabbedContent(id="tabs"):
                with TabPane("Checks", id="tab-checks"):
                    yield Table("checks", opens=False)
                with TabPane("Cells", id="tab-cells"):
                    yield Table("cells", opens=False)
                with TabPane("Time", id="tab-time"):
                    with VerticalScroll(id="times"):
                        yield TimeBars("", id="bars")
                        yield Spread("", id="spread")
                with TabPane("Prompt", id="tab-prompt"):
                    yield CodeView(id="prompt")
                with TabPane("Diff", id="tab-diff"):
                    yield CodeView(id="diff")

    def on_mount(self) -> None:
        self.query_one("#parts").display = False
        self.query_one("#siblings", Table).head(("draft", 8), ("verdict", 10), ("ratio", 7))
        self.query_one("#checks", Table).head(("check", None), ("status", 7), ("detail", None))
        self.query_one("#cells", Table).head(
            ("cell", None), ("status", 7), ("error", 9), ("allowed", 9), ("detail", None)
        )

    def show(self, identity: str) -> None:
        """Open the draft of that id."""
        self._read(identity)

    def commands(self) -> list[tuple[str, str]]:
        draft = self.draft
        if draft is None:
            return []
        found = [("show", command_line.command("history", "show", draft.id))]
        if self._other_id is not None:
            found.append(
                ("diff", command_line.command("history", "diff", self._other_id, draft.id))
            )
        found.append(("re-judge", command_line.command("history", "rejudge", draft.id)))
        if draft.outcome in PASSED:
            found.append(("save", command_line.save(draft.id, "DIR")))
            found.append(("grid", command_line.command("grid", draft.id)))
        if draft.outcome == "win":
            found.append(("claim", command_line.command("crowns", "claim", draft.id)))
        return [*found, ("delete", command_line.command("history", "rm", draft.id))]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("step", "diff", "copy_code", "copy_id", "editor"):
            return self.draft is not None
        if action in ("save", "grid"):
            return self.draft is not None and self.draft.outcome in PASSED
        if action == "claim":
            return self.draft is not None and self.draft.outcome == "win"
        return super().check_action(action, parameters)

    def chosen(self) -> Draft | None:
        return self.draft

    def judging_changed(self, title: str | None) -> None:
        self._said = title
        self._show_head()

    def judged_again(self, identity: str) -> None:
        if self.draft is not None and self.draft.id == identity:
            self.show(identity)

    @property
    def _other_id(self) -> str | None:
        """The draft that a comparison is offered with: the last one compared, else the best of the
        session, else any of it.
        """
        if self.draft is None:
            return None
        others = [draft for draft in self._siblings if draft.id != self.draft.id]
        others.sort(
            key=lambda draft: (
                PASSED.index(draft.outcome) if draft.outcome in PASSED else len(PASSED),
                -(draft.ratio or 0.0),
            )
        )
        return (
            self._other
            if self._other not in (None, self.draft.id)
            else others[0].id
            if others
            else None
        )

    @work(thread=True, exclusive=True, group="draft", exit_on_error=False)
    def _read(self, identity: str) -> None:
        where = parse_id(identity)
        try:
            with read_history(paths.history_file()) as history:
                siblings = history.drafts(where.session)
                found = next((draft for draft in siblings if draft.number == where.number), None)
                if found is None:
                    raise UsageError(
                        f"the history holds no draft {identity}",
                        fix="it may have been deleted; 3 shows the history",
                    )
                answer(self, DraftFound(history.session(where.session), found, siblings))
        except KmintError as error:
            answer(self, Refused(error))

    @on(Refused)
    def _refused(self, message: Refused) -> None:
        self.tell(message.error)

    @on(DraftFound)
    def _found(self, message: DraftFound) -> None:
        self.session, self.draft, self._siblings = message.session, message.draft, message.siblings
        draft = message.draft
        self.query_one("#empty").display = False
        self.query_one("#parts").display = True
        self._show_head()
        self.query_one("#code", CodeView).show(draft.source)
        code = self.query_one("#code", CodeView)
        code.border_title, code.border_subtitle = (
            f"draft {draft.id}",
            f"sha256 {draft.source_sha256[:12]}",
        )
        self._show_siblings()
        verdict = draft.verdict or {}
        self.query_one("#checks", Table).fill(
            (
                check["name"],
                (
                    check["name"],
                    styled(self.app, check["status"], check["status"]),
                    check.get("detail", ""),
                ),
            )
            for check in verdict.get("checks", [])
        )
        self.query_one("#cells", Table).fill(
            (
                f"{place}",
                (
                    cell["name"],
                    styled(
                        self.app,
                        status := cell_status(cell["status"], cell.get("role", "")),
                        status,
                    ),
                    _figure(cell.get("error")),
                    _figure(cell.get("budget")),
                    cell.get("detail", ""),
                ),
            )
            for place, cell in enumerate(verdict.get("cells", []))
        )
        self.query_one(TimeBars).show(
            verdict.get("timing"), untimed=self._untimed(verdict.get("mode"))
        )
        self.query_one(Spread).show(verdict.get("timing"))
        self.query_one("#prompt", CodeView).show(
            f"{message.session.system}\n\n{message.session.user}", language="markdown"
        )
        self.query_one("#diff", CodeView).show(
            "Press d to compare this draft with another one.", language="text"
        )
        if self.focused is None:
            self.query_one("#code").focus()
        self.refresh_bindings()

    def _show_siblings(self) -> None:
        table = self.query_one("#siblings", Table)
        with self.prevent(DataTable.RowHighlighted):
            table.fill(
                (
                    one.id,
                    (
                        one.id,
                        styled(self.app, outcome := one.outcome or "same", outcome),
                        f"{one.ratio:.2f}x" if one.ratio is not None else "",
                    ),
                )
                for one in self._siblings
            )
        table.go_to(self.draft.id if self.draft is not None else None)

    @on(DataTable.RowSelected, "#siblings")
    def _sibling_selected(self, event: DataTable.RowSelected) -> None:
        if event.row_key.value is not None:
            self.show(event.row_key.value)

    def _untimed(self, mode: str | None) -> str:
        if mode == "interpret":
            return "not timed: no GPU; judged by Triton's interpreter on the CPU, which is weaker than a replay on a GPU"
        return "not timed: it did not get that far" if mode else "not judged"

    def _show_head(self) -> None:
        draft, session = self.draft, self.session
        if draft is None or session is None:
            return
        if draft.duplicate_of is not None:
            outcome, reason = "same", f"the same kernel as {draft.session}.{draft.duplicate_of}"
        elif draft.verdict is None:
            outcome, reason = "not judged", f"ended by {draft.finish}"
        else:
            outcome, reason = draft.outcome or "", long_reason(draft.verdict)
        timing = (draft.verdict or {}).get("timing")
        where = f" {timed_at(timing)}" if timing else ""
        gained = f", {draft.ratio:.3f}x{where}" if draft.ratio is not None else ""
        facts = draft.maker(session.model)
        if draft.author == "smith":
            facts += f", {draft.tokens} tokens in {draft.seconds:.1f} s, seed {draft.seed}, temperature {draft.temperature:g}"
        judging = f"  ({self._said})" if self._said else ""
        self.query_one("#head", Static).update(
            f"{draft.id}  {session.op}  {outcome}{gained}{judging}\n{reason}\n{facts}"
        )

    def action_step(self, by: int) -> None:
        if self.draft is None or not self._siblings:
            return
        numbers = [draft.number for draft in self._siblings]
        place = (numbers.index(self.draft.number) + by) % len(numbers)
        self.show(self._siblings[place].id)

    def action_save(self) -> None:
        if self.draft is not None:
            self.kmint.save_draft(self.draft.id)

    def action_claim(self) -> None:
        if self.draft is not None:
            self.kmint.claim_crown(self.draft.id)

    def action_grid(self) -> None:
        if self.draft is not None:
            self.kmint.open_grid(self.draft.id)

    def action_diff(self) -> None:
        if self.draft is None or self.session is None:
            return
        numbers = ", ".join(
            draft.id for draft in self._siblings if draft.number != self.draft.number
        )
        detail = f"Any draft of the history. Of this session: {numbers or 'none'}"
        mine = self.draft.id
        ask = Ask("Compare with which draft?", detail, self._other_id or "", "12.3",
                  command=lambda other: command_line.command("history", "diff", other, mine))  # fmt: skip
        self.app.push_screen(ask, self._compare)

    def _compare(self, identity: str | None) -> None:
        if identity is None or self.draft is None:
            return
        try:
            where = parse_id(identity)
            if where.number is None:
                raise UsageError(
                    f"{identity} is a session", fix=f"name one of its drafts, such as {identity}.0"
                )
            with read_history(paths.history_file()) as history:
                other = history.draft(where.session, where.number)
        except KmintError as error:
            self.tell(error)
            return
        self._other = other.id
        self.query_one("#diff", CodeView).show(difference(other, self.draft), language="diff")
        self.query_one(TabbedContent).active = "tab-diff"

    def action_copy_code(self) -> None:
        if self.draft is not None:
            self.copy(standalone(self.draft.source), f"draft {self.draft.id}")

    def action_editor(self) -> None:
        if self.draft is not None and self.session is not None:
            self.edit(standalone(self.draft.source), f"draft-{self.draft.id}", self.session.op)

    def action_copy_id(self) -> None:
        if self.draft is not None:
            self.copy(self.draft.id, "id")

    def action_back(self) -> None:
        self.kmint.action_show_mode(self.kmint.mode_before)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2e}"


def difference(before: Draft, after: Draft) -> str:
    """The diff's text, or one line that says there is none."""
    lines = unified_diff(
        before.source.splitlines(), after.source.splitlines(), before.id, after.id, lineterm=""
    )
    return "\n".join(lines) or f"{before.id} and {after.id} are the same text"
