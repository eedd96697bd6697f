"""Mint: the user composes a request, watches drafts get written and judged, and saves the best."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import ClassVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.widgets import DataTable, Static

from kmint_tui.core import command_line, smiths
from kmint_tui.core.facts import NO_GPU
from kmint_tui.core.run import Ended, Failure, MintRun, RunEvent, Step
from kmint_tui.core.session_state import LiveSession
from kmint_tui.core.session_words import summary, what_next
from kmint_tui.errors import KmintError
from kmint_tui.events import Finished, MintEvent, Notice, Progress, Started, Swept
from kmint_tui.minting.result import MintResult
from kmint_tui.minting.standalone import standalone
from kmint_tui.screens.base import ACT, COPY, VIEW, KmintScreen, key
from kmint_tui.screens.messages import ModelsFound, RunReady, answer
from kmint_tui.widgets.bars import TimeBars
from kmint_tui.widgets.code import CodeView
from kmint_tui.widgets.composer import Composer
from kmint_tui.widgets.draft_table import DraftTable
from kmint_tui.widgets.start_list import OPERATION, OWN, SESSION, StartList
from referee.ops.catalogue import get
from referee.reference.asked import Asked

REFRESH_SECONDS = 0.12
SHARE_OF_IDLE = 4
COUNT_SECONDS = 0.5
"""Seconds between two updates of the counts in the table of drafts. One changed count draws the
whole table, so counts change less often.
"""
EMPTY = (
    "Compose a block above and press [b]m[/b] to mint, or choose below. A small model on this machine "
    "drafts kernels; the referee rejects every draft that is wrong, dishonest or slow."
)


class MintScreen(KmintScreen):
    """Shows one session: the one under way, or the last one."""

    mode = "mint"
    CSS_PATH = "mint.tcss"
    AUTO_FOCUS = "#way"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("m,f5", "start", "Mint", "mint.start", "Draft and judge what the form says", ACT, show=True),
        key("x", "cancel", "Cancel", "mint.cancel", "Stop drafting; once more gives up the judging too", ACT, show=True),
        key("s", "save", "Save", "mint.save", "Save the draft under the cursor into a folder", ACT, show=True),
        key("y", "copy_code", "Copy code", "copy.code", "Copy the code that is shown", COPY),
        key("v", "editor", "Editor", "mint.editor", "Open the code in $EDITOR; an edited kernel can be judged", ACT),
        key("b", "best", "Best", "mint.best", "Go to the best draft", VIEW),
        key("e,slash", "edit", "Edit", "mint.edit", "Go to the form", VIEW),
        key("escape", "table", "Table", "mint.table", "Go from the form to the table", VIEW),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.session = LiveSession()
        self._run: MintRun | None = None
        self._followed: int | None = None
        self._chosen = False
        self._shown = (-1, False)
        self._pause = REFRESH_SECONDS
        self._saveable: bool | None = False
        self._counted: set[int] = set()
        self._counted_at = 0.0

    def body(self) -> ComposeResult:
        yield Composer(id="composer")
        yield Static("", id="trouble", markup=False)
        yield Static("", id="status", markup=False)
        yield Static("", id="next", markup=False)
        with Vertical(id="start-page"):
            yield Static(EMPTY, classes="empty")
            yield StartList(id="start-list")
        with Container(id="work"):
            yield DraftTable("table")
            with Vertical(id="side"):
                code = CodeView(id="code", classes="pane")
                code.border_title = "code"
                yield code
                with Vertical(id="notes"):
                    yield Static("", id="why", markup=False)
                    yield TimeBars("", id="bars")

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self._look_for_models()
        self.query_one(StartList).read()

    @on(events.Resize)
    def _resized(self) -> None:
        self.query_one(DraftTable).shape(narrow=self._narrow, session=self.session)

    def commands(self) -> list[tuple[str, str]]:
        found = []
        try:
            found.append(("mint", command_line.mint(self.query_one(Composer).wishes())))
        except KmintError:
            pass
        identity = self._identity
        if identity is not None:
            found.append(("show draft", command_line.command("history", "show", identity)))
        if identity is not None and self.check_action("save", ()):
            found.append(("save draft", command_line.save(identity, "DIR", self._reference)))
        return found

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "cancel":
            return self._run is not None
        if action == "start":
            return self._run is None
        if action in ("open", "best", "table", "copy_code", "editor"):
            return bool(self.session.drafts)
        if action == "save":
            index = self.selected
            row = self.session.drafts.get(index) if index is not None else None
            return row is not None and row.verdict is not None and row.verdict.passed
        return True

    @property
    def selected(self) -> int | None:
        """The number of the draft under the cursor."""
        # Textual checks the keys before it composes the screen.
        tables = self.query(DraftTable)
        key = tables.first().key if tables else None
        return int(key) if key is not None else None

    @property
    def _identity(self) -> str | None:
        """The history id of the draft under the cursor, once it is stored."""
        return self.session.id_of(self.selected) if self.selected is not None else None

    @property
    def _narrow(self) -> bool:
        return self.app.size.width < 100

    @work(thread=True, exclusive=True, group="models", exit_on_error=False)
    def _look_for_models(self) -> None:
        answer(self, ModelsFound(tuple(smiths.usable())))

    @on(StartList.OptionSelected, "#start-list")
    def _start_chosen(self, event: StartList.OptionSelected) -> None:
        chosen = str(event.option.id)
        composer = self.query_one(Composer)
        if chosen.startswith(SESSION):
            self.kmint.open_session(int(chosen.removeprefix(SESSION)))
        elif chosen == OWN:
            composer.ask_for_own()
        else:
            composer.ask_for(get(chosen.removeprefix(OPERATION)))
            composer.query_one("#start").focus()

    @on(ModelsFound)
    def _models_found(self, message: ModelsFound) -> None:
        self.query_one(Composer).offer_models(
            [(smith.title, smith.id) for smith in message.smiths], ""
        )

    @on(Composer.Started)
    def action_start(self) -> None:
        if self._run is not None:
            return
        try:
            wishes = self.query_one(Composer).wishes()
            self.kmint.refuse_to_disturb("a session")
        except KmintError as error:
            self.tell(error)
            return
        others = self.kmint.facts.others if self.kmint.facts is not None else None
        if others is not None:
            text = f"{others} uses the GPU too. Times will be less certain; the referee says so where it notices."
            self.notify(text, title="GPU busy", severity="warning", markup=False)
        run = MintRun(wishes, self.kmint.engine, lambda: self.post_message(RunReady()))
        self.attach(run)
        self._execute(run)

    def attach(self, run: MintRun) -> None:
        """Show the events of this run."""
        self._run = self.kmint.run_now = run
        self.begin()

    def begin(self) -> None:
        """Reset the screen for a new session."""
        self.session, self._counted = LiveSession(), set()
        self._followed, self._chosen = None, False
        self.query_one("#trouble").remove_class("-shown")
        self.query_one("#next").remove_class("-shown")
        self.query_one("#start-page").display = False
        self.query_one("#work").add_class("-shown")
        self.query_one(Composer).add_class("-folded")
        self.query_one(DraftTable).shape(narrow=self._narrow, session=self.session)
        self.query_one(DraftTable).focus()
        self.query_one("#code", CodeView).show("")
        self.query_one(TimeBars).show(None, untimed="")
        self.kmint.show_facts()
        self.refresh_bindings()

    @work(thread=True, group="mint", exit_on_error=False)
    def _execute(self, run: MintRun) -> None:
        run.execute()

    @on(RunReady)
    def _run_ready(self) -> None:
        self.set_timer(self._pause, self._take)

    def _take(self) -> None:
        if self._run is not None:
            began = time.monotonic()
            self.follow(self._run.take())
            # A slow terminal or a busy machine gets fewer pictures, and keys are still handled
            # between them.
            self._pause = max(REFRESH_SECONDS, SHARE_OF_IDLE * (time.monotonic() - began))

    def follow(self, events: Iterable[RunEvent]) -> None:
        """Show the changes that these events make."""
        changed: set[int] = set()
        only_tokens = True
        for event in events:
            only_tokens = only_tokens and isinstance(event, Progress)
            match event:
                case Step(text=text):
                    self._say(text)
                case Failure():
                    self._fail(event)
                case Ended():
                    self._ended()
                case Notice(text=text):
                    self.app.notify(text, title="mint", markup=False)
                case _:
                    if isinstance(event, Swept):
                        self.app.notify(event.sweep.reason, title="tuner", markup=False)
                    changed |= self.session.apply((event,))
                    self._note_loaded(event)
                    if isinstance(event, Started):
                        self.query_one(Composer).describe(event.request)
                    if isinstance(event, Finished):
                        self._show_next(event.result)
        if changed:
            self._show(changed, only_tokens=only_tokens)
        if self.kmint.doing != self.session.doing:
            self.kmint.doing = self.session.doing
            self.kmint.show_facts()

    def _note_loaded(self, event: MintEvent) -> None:
        if (
            isinstance(event, Progress)
            and self.kmint.facts is not None
            and self.kmint.facts.offload == "not loaded"
        ):
            self.kmint.look_at_machine()

    def _show(self, changed: set[int], *, only_tokens: bool) -> None:
        table = self.query_one(DraftTable)
        if only_tokens:
            self._counted |= changed
            if time.monotonic() - self._counted_at > COUNT_SECONDS:
                table.show_tokens(self.session, self._counted)
                self._counted, self._counted_at = set(), time.monotonic()
        else:
            best = self.session.best
            table.show_changes(
                self.session, changed if self._followed == best else {*self.session.drafts}
            )
            if best is not None and best != self._followed and not self._chosen:
                table.go_to(str(best))
            self._followed = best
            self.refresh_bindings()
        if self.selected in changed or (self.selected == self._followed and not only_tokens):
            self._show_code()
        self.query_one("#status", Static).update(summary(self.session), layout=False)

    def _show_next(self, result: MintResult) -> None:
        line = self.query_one("#next", Static)
        line.update(what_next(result))
        line.add_class("-shown")

    def _say(self, text: str) -> None:
        self.query_one("#status", Static).update(text)

    def _fail(self, failure: Failure) -> None:
        trouble = self.query_one("#trouble", Static)
        trouble.update(
            "\n".join(part for part in (f"{failure.title}: {failure.message}", failure.fix) if part)
        )
        trouble.add_class("-shown")

    def _ended(self) -> None:
        run, self._run, self.kmint.run_now = self._run, None, None
        if not self.session.drafts:
            composer = self.query_one(Composer)
            composer.remove_class("-folded")
            self.query_one("#work").remove_class("-shown")
            self.query_one("#start-page").display = True
            self._say(
                "stopped before the session began" if run is not None and run.stopped() else ""
            )
            composer.query_one("#way").focus()
        self.kmint.look_at_machine()
        self.kmint.show_facts()
        self.refresh_bindings()
        if not self.is_current and self.session.result is not None:
            self.app.notify(summary(self.session), title="session finished", markup=False)

    @on(DataTable.RowHighlighted)
    def _highlighted(self) -> None:
        self._show_code()
        saveable = self.check_action("save", ())
        if saveable != self._saveable:
            # Drawing the keys again takes long, and moving through the table should be quick.
            self._saveable = saveable
            self.refresh_bindings()

    @on(DataTable.RowSelected)
    def _selected(self) -> None:
        self.action_open()

    def on_key(self, event: events.Key) -> None:
        if event.key in ("up", "down", "j", "k", "g", "G") and isinstance(self.focused, DraftTable):
            self._chosen = True

    def _show_code(self) -> None:
        row = self.session.drafts.get(self.selected) if self.selected is not None else None
        if row is None:
            return
        code = self.query_one("#code", CodeView)
        code.border_title = f"draft {row.index}"
        self.query_one("#why", Static).update(row.why, layout=row.phase != "writing")
        writing = row.phase == "writing"
        if writing:
            code.show_end(row.source)
        else:
            code.show(row.source, top=self._shown != (row.index, writing))
        self._shown = (row.index, writing)
        timing = row.verdict.timing if row.verdict is not None else None
        self.query_one(TimeBars).show(
            timing, untimed=self._untimed(row.verdict is not None and row.verdict.passed)
        )

    def _untimed(self, passed: bool) -> str:
        gpu = self.kmint.facts.gpu if self.kmint.facts is not None else ""
        return "not timed: no GPU" if gpu == NO_GPU else "not timed yet" if passed else ""

    def action_cancel(self) -> None:
        if self._run is None:
            return
        if self._run.stopped():
            self._run.abandon()
            self._say("giving up: finished drafts are in the history")
        else:
            self._run.stop()
            self._say("stopping: finished drafts are still judged; x again gives that up too")

    def action_open(self) -> None:
        identity = self._identity
        if identity is None:
            self.notify("This draft is still being written.", severity="warning")
        else:
            self.kmint.open_draft(identity)

    def action_save(self) -> None:
        identity = self._identity
        if identity is not None:
            self.kmint.save_draft(identity, self._reference)

    @property
    def _reference(self) -> Asked | None:
        task = self.session.request.task if self.session.request else ""
        own = not isinstance(task, str) and task.file is not None
        return self.query_one(Composer).reference if own else None

    def action_copy_code(self) -> None:
        row = self.session.drafts.get(self.selected) if self.selected is not None else None
        if row is not None:
            self.copy(standalone(row.source), f"draft {row.index}")

    def action_editor(self) -> None:
        row = self.session.drafts.get(self.selected) if self.selected is not None else None
        if row is not None and row.draft is not None and self.session.request is not None:
            self.edit(standalone(row.source), f"draft-{row.index}", self.session.request.op.name)

    def action_best(self) -> None:
        if self.session.best is None:
            self.notify("No kernel has passed.", severity="warning")
        else:
            self.query_one(DraftTable).go_to(str(self.session.best))

    def action_edit(self) -> None:
        self.query_one(Composer).remove_class("-folded")
        self.query_one("#way").focus()

    def action_table(self) -> None:
        self.query_one(DraftTable).focus()
