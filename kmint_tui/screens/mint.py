"""Mint: say what is wanted, watch the drafts being written and judged, open or save the best."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import ClassVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.widgets import DataTable, Static

from kmint_tui.errors import KmintError
from kmint_tui.events import MintEvent, Notice, Progress, Swept
from kmint_tui.screens.base import ACT, COPY, VIEW, KmintScreen
from kmint_tui.screens.messages import ModelsFound, RunReady, answer
from kmint_tui.widgets.bars import TimeBars
from kmint_tui.widgets.code import CodeView
from kmint_tui.widgets.composer import Composer
from kmint_tui.widgets.draft_table import DraftTable
from kmint_tui.workbench import command_line, smiths
from kmint_tui.workbench.live import LiveSession
from kmint_tui.workbench.run import Ended, Failure, MintRun, RunEvent, Step

REFRESH_SECONDS = 0.12
SHARE_OF_IDLE = 4
COUNT_SECONDS = 0.5
"""The table of drafts is drawn as a whole when one count in it changes, so counts are brought up to date less often."""
EMPTY = (
    "Put a block together above, or choose an operation, and press [b]m[/b] to mint.\n\n"
    "A small model on this machine drafts kernels; the referee throws away every draft that is wrong, dishonest or slow."
)


class MintScreen(KmintScreen):
    """Shows one session: the one under way, or the last one."""

    mode = "mint"
    CSS_PATH = "mint.tcss"
    AUTO_FOCUS = "#way"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m,f5", "start", "Mint", id="mint.start", tooltip="Draft and judge what the form says", group=ACT),
        Binding("x", "cancel", "Cancel", id="mint.cancel", tooltip="Stop drafting; once more gives up the judging too", group=ACT),
        Binding("s", "save", "Save", id="mint.save", tooltip="Save the draft under the cursor into a folder", group=ACT),
        Binding("y", "copy_code", "Copy code", show=False, id="copy.code", tooltip="Copy the code that is shown", group=COPY),
        Binding("b", "best", "Best", show=False, id="mint.best", tooltip="Go to the best draft", group=VIEW),
        Binding("e,slash", "edit", "Edit", show=False, id="mint.edit", tooltip="Go to the form", group=VIEW),
        Binding("escape", "table", "Table", show=False, id="mint.table", tooltip="Go from the form to the table", group=VIEW),
    ]

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
        yield Static(EMPTY, id="empty", classes="empty")
        with Container(id="work"):
            yield DraftTable("table")
            with Vertical(id="side"):
                code = CodeView(id="code", classes="pane")
                code.border_title = "code"
                yield code
                with Vertical(id="notes"):
                    yield Static("", id="why", markup=False)
                    yield TimeBars("", id="bars")

    def on_mount(self) -> None:
        self._look_for_models()

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self._look_for_models()

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
        if action in ("open", "best", "table", "copy_code"):
            return bool(self.session.drafts)
        if action == "save":
            index = self.selected
            row = self.session.drafts.get(index) if index is not None else None
            return row is not None and row.verdict is not None and row.verdict.passed
        return True

    @property
    def selected(self) -> int | None:
        """The number of the draft under the cursor."""
        # Keys are looked at before the screen is composed.
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

    @on(ModelsFound)
    def _models_found(self, message: ModelsFound) -> None:
        self.query_one(Composer).offer_models([(smith.title, smith.id) for smith in message.smiths], "")

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
        """Show what comes from this run."""
        self._run = self.kmint.run_now = run
        self.begin()

    def begin(self) -> None:
        """Make room for a new session."""
        self.session, self._followed, self._chosen, self._counted = LiveSession(), None, False, set()
        self.query_one("#trouble").remove_class("-shown")
        self.query_one("#empty").display = False
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
            # A slow terminal or a busy machine gets fewer pictures, and keys are still handled between them.
            self._pause = max(REFRESH_SECONDS, SHARE_OF_IDLE * (time.monotonic() - began))

    def follow(self, events: Iterable[RunEvent]) -> None:
        """Show what these events change."""
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
        if changed:
            self._show(changed, only_tokens=only_tokens)
        if self.kmint.doing != self.session.doing:
            self.kmint.doing = self.session.doing
            self.kmint.show_facts()

    def _note_loaded(self, event: MintEvent) -> None:
        if isinstance(event, Progress) and self.kmint.facts is not None and self.kmint.facts.offload == "not loaded":
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
            table.show_changes(self.session, changed if self._followed == best else {*self.session.drafts})
            if best is not None and best != self._followed and not self._chosen:
                table.go_to(str(best))
            self._followed = best
            self.refresh_bindings()
        if self.selected in changed or (self.selected == self._followed and not only_tokens):
            self._show_code()
        self.query_one("#status", Static).update(self._summary(), layout=False)

    def _summary(self) -> str:
        session = self.session
        if session.request is None:
            return ""
        drafts = list(session.drafts.values())
        judged = sum(row.phase in ("judged", "same", "stopped", "to be timed") for row in drafts)
        head = f"session {session.session}: {session.request.op.name}, {session.request.model.id}, seed {session.request.seed}"
        tokens = sum(row.tokens for row in drafts)
        state = f"{session.result.state} in {session.result.seconds:.1f} s" if session.result else "stopping" if session.stopping else ""
        counted = f"{judged}/{len(drafts)} judged, {session.passed} correct"
        return "  ·  ".join(part for part in (counted, state, f"{tokens} tokens", head) if part)

    def _say(self, text: str) -> None:
        self.query_one("#status", Static).update(text)

    def _fail(self, failure: Failure) -> None:
        trouble = self.query_one("#trouble", Static)
        trouble.update("\n".join(part for part in (f"{failure.title}: {failure.message}", failure.fix) if part))
        trouble.add_class("-shown")

    def _ended(self) -> None:
        run, self._run, self.kmint.run_now = self._run, None, None
        composer = self.query_one(Composer)
        composer.remove_class("-folded")
        if not self.session.drafts:
            self.query_one("#work").remove_class("-shown")
            self.query_one("#empty").display = True
            self._say("stopped before the session began" if run is not None and run.stopped() else "")
            composer.query_one("#way").focus()
        self.kmint.look_at_machine()
        self.kmint.show_facts()
        self.refresh_bindings()
        if not self.is_current and self.session.result is not None:
            self.app.notify(self._summary(), title="session finished", markup=False)

    @on(DataTable.RowHighlighted)
    def _highlighted(self) -> None:
        self._show_code()
        saveable = self.check_action("save", ())
        if saveable != self._saveable:
            # Drawing the keys anew is dear, and moving through the table should be quick.
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
        self.query_one(TimeBars).show(timing, untimed=self._untimed(row.verdict is not None and row.verdict.passed))

    def _untimed(self, passed: bool) -> str:
        gpu = self.kmint.facts.gpu if self.kmint.facts is not None else ""
        return "not timed: no GPU" if gpu == "no GPU" else "not timed yet" if passed else ""

    def action_cancel(self) -> None:
        if self._run is None:
            return
        if self._run.stopped():
            self._run.abandon()
            self._say("giving up: what is done is in the history")
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
    def _reference(self) -> str | None:
        task = self.session.request.task if self.session.request else None
        return None if task is None or isinstance(task, str) else self.query_one(Composer).reference

    def action_copy_code(self) -> None:
        row = self.session.drafts.get(self.selected) if self.selected is not None else None
        if row is not None:
            self.copy(row.source, f"draft {row.index}")

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
