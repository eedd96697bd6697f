"""Models: the known smiths, whether each is here and fits, and the actions pull, import, verify and
remove.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import DataTable, ProgressBar, Static

from kmint_tui import paths
from kmint_tui.core import command_line, smiths
from kmint_tui.core.jobs import Cancelled, Job
from kmint_tui.core.pulling import PULLING, Pull, Pulled
from kmint_tui.core.smiths import SmithState
from kmint_tui.errors import ModelError
from kmint_tui.models import digest, registry
from kmint_tui.models.fit import Fit, readable
from kmint_tui.models.intake import import_any, remove
from kmint_tui.models.remote import Remote
from kmint_tui.screens.base import ACT, KmintScreen, key
from kmint_tui.screens.confirm import Ask, Confirm
from kmint_tui.screens.messages import ModelsFound, Refused, answer
from kmint_tui.widgets.table import Table
from kmint_tui.widgets.themes import styled


class ModelsScreen(KmintScreen):
    """Reads the registry and the store each time it is shown. It runs one pull at a time."""

    mode = "models"
    CSS_PATH = "models.tcss"
    AUTO_FOCUS = "#smiths"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("p", "pull", "Pull", "models.pull", "Fetch the model from the hub; goes on where it ended", ACT, show=True),
        key("x", "cancel", "Cancel", "models.cancel", "Cancel the pull; the part that arrived is kept", ACT, show=True),
        key("i", "import", "Import", "models.import", "Bring a GGUF file or a bundle into the store", ACT, show=True),
        key("v", "verify", "Verify", "models.verify", "Read the whole file for its sha256 and compare", ACT, show=True),
        key("D", "remove", "Remove", "models.remove", "Take the model out of the store; asks first", ACT, show=True),
    ]  # fmt: skip

    @dataclass
    class Moved(Message):
        """An action is over; `text` says which one, and `good` is False for a warning."""

        text: str
        good: bool = True

    @dataclass
    class PullLooked(Message):
        """The file on the hub was found and its head was read."""

        pull: Pull
        remote: Remote
        fit: Fit

    @dataclass
    class PullSaid(Message):
        """The pull under way has made progress."""

        progress: Pulled

    @dataclass
    class PullEnded(Message):
        """The pull is over; `error` is the failure, or None."""

        text: str
        error: Exception | None = None

    def __init__(self) -> None:
        super().__init__()
        self._smiths: tuple[SmithState, ...] = ()
        self._pull: Pull | None = None

    def body(self) -> ComposeResult:
        yield Table("smiths", opens=False)
        yield Static("", id="pulling", markup=False)
        yield ProgressBar(id="bar", show_eta=False)
        with VerticalScroll(id="about", classes="pane"):
            yield Static("", id="facts-of-model", markup=False)

    def on_mount(self) -> None:
        self.query_one("#smiths", Table).head(
            ("id", 18), ("state", 8), ("file", 8), ("size", 9), ("fit", None)
        )
        self.query_one("#bar").display = False

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self._read()

    def commands(self) -> list[tuple[str, str]]:
        smith = self.smith
        verbs = []
        if smith is not None:
            missing = smith.state == "not here" and smith.entry.kind == "hub"
            allowed = {
                "pull": missing,
                "show": True,
                "verify": smith.state == "here",
                "rm": bool(self.check_action("remove", ())),
            }
            verbs = [verb for verb, possible in allowed.items() if possible]
        found = [
            (verb, command_line.command("models", verb, smith.id))
            for verb in verbs
            if smith is not None
        ]
        return [
            *found,
            ("import", command_line.command("models", "import", "FILE")),
            ("list", command_line.command("models", "ls")),
        ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        smith = self.smith
        if action == "pull":
            return (
                smith is not None
                and smith.entry.kind == "hub"
                and smith.state != "here"
                and self._pull is None
            )
        if action == "cancel":
            return self._pull is not None
        if action == "verify":
            return smith is not None and smith.state == "here"
        if action == "remove":
            return smith is not None and smith.entry.kind != "package" and smith.state != "not here"
        return True

    @property
    def smith(self) -> SmithState | None:
        """The smith under the cursor."""
        tables = self.query("#smiths")
        key = tables.first(Table).key if tables else None
        return next((smith for smith in self._smiths if smith.id == key), None)

    @work(thread=True, exclusive=True, group="models", exit_on_error=False)
    def _read(self) -> None:
        try:
            answer(self, ModelsFound(tuple(smiths.known())))
        except Exception as error:
            answer(self, Refused(error))

    @on(ModelsFound)
    def _found(self, message: ModelsFound) -> None:
        self._smiths = message.smiths
        self.query_one("#smiths", Table).fill(
            (smith.id, self._cells(smith)) for smith in message.smiths
        )
        self._describe()

    def _cells(self, smith: SmithState) -> tuple[object, ...]:
        file = smith.file
        fit = (
            styled(self.app, smith.fit, "fits" if smith.fits else "warn")
            if smith.fit
            else smith.trouble
        )
        state = styled(self.app, smith.state, smith.state)
        return (
            smith.id,
            state,
            file.quant if file else "",
            readable(file.nbytes) if file else "",
            fit,
        )

    @on(DataTable.RowHighlighted)
    def _describe(self) -> None:
        smith = self.smith
        if smith is None:
            return
        entry, file = smith.entry, smith.file
        lines = [
            ("model", f"{entry.title} ({entry.id})"),
            ("licence", entry.licence),
            ("base", entry.base or ""),
            (
                "from",
                {
                    "package": "ships inside kmint",
                    "hub": entry.repo or "",
                    "made": "made here with `kmint convert`",
                }[entry.kind],
            ),
            ("file", str(file.path) if file else smith.trouble),
            ("memory", smith.fit),
            ("prompt", f"{entry.dialect} form"),
            (
                "sampling",
                f"temperature {entry.temperature:g}, top-p {entry.top_p:g}, at most {entry.max_tokens} tokens",
            ),
            ("note", entry.note),
        ]
        self.query_one("#facts-of-model", Static).update(
            "\n".join(f"{name:<8} {value}" for name, value in lines if value)
        )
        self.refresh_bindings()

    @on(Refused)
    def _refused(self, message: Refused) -> None:
        self._say("")
        self.tell(message.error)

    @on(Moved)
    def _moved(self, message: Moved) -> None:
        self._say("")
        self.notify(
            message.text,
            severity="information" if message.good else "warning",
            timeout=10,
            markup=False,
        )
        self._read()
        self.kmint.look_at_machine()

    def action_pull(self) -> None:
        smith = self.smith
        if smith is not None and self._pull is None:
            job = self.kmint.jobs.begin(f"{PULLING}{smith.id}")
            self._pull = Pull(
                smith.entry, lambda progress: self.post_message(self.PullSaid(progress)), job
            )
            self.refresh_bindings()
            self._look(self._pull)

    @work(thread=True, group="pull", exit_on_error=False)
    def _look(self, pull: Pull) -> None:
        try:
            remote, fit = pull.look(offline=self.kmint.offline_reason)
        except Exception as error:
            self._over(pull, error)
        else:
            self.post_message(self.PullLooked(pull, remote, fit))

    @on(PullLooked)
    def _pull_looked(self, message: PullLooked) -> None:
        pull, remote = message.pull, message.remote
        if message.fit.verdict != "does not fit":
            self.notify(
                message.fit.text, title=f"{remote.name}, {remote.nbytes / 1e9:.2f} GB", markup=False
            )
            self._fetch(pull, remote)
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self._fetch(pull, remote)
            else:
                self._over(pull, Cancelled(pull.entry.id))

        detail = f"{remote.name}, {remote.nbytes / 1e9:.2f} GB. {message.fit.text}"
        self.app.push_screen(
            Confirm("It does not fit here. Pull it all the same?", detail, "Pull"), answered
        )

    @work(thread=True, group="pull", exit_on_error=False)
    def _fetch(self, pull: Pull, remote: Remote) -> None:
        try:
            path = pull.fetch(remote, offline=self.kmint.offline_reason)
        except Exception as error:
            self._over(pull, error)
        else:
            pull.job.end()
            self.post_message(self.PullEnded(f"{pull.entry.id} is here: {path}"))

    def _over(self, pull: Pull, error: Exception) -> None:
        pull.job.end()
        if isinstance(error, Cancelled):
            self.post_message(
                self.PullEnded(f"{pull.entry.id}: pull cancelled; the part that arrived is kept")
            )
        else:
            self.post_message(self.PullEnded("", error))

    @on(PullSaid)
    def _pull_said(self, message: PullSaid) -> None:
        done = message.progress
        if not done.total:
            self._say(f"{done.model}: asking the hub …")
            return
        bar = self.query_one("#bar", ProgressBar)
        bar.display = True
        bar.update(total=done.total, progress=done.done)
        left = f", {(done.total - done.done) / done.rate:.0f} s left" if done.rate > 0 else ""
        self._say(
            f"{done.model}: {done.done / 1e6:.0f} of {done.total / 1e6:.0f} MB at {done.rate / 1e6:.1f} MB/s{left}   (x cancels)"
        )

    @on(PullEnded)
    def _pull_ended(self, message: PullEnded) -> None:
        self._pull = None
        self.query_one("#bar").display = False
        self._say("")
        if message.error is not None:
            self.tell(message.error)
        elif self.is_current:
            self.notify(message.text, markup=False)
        else:
            self.app.notify(message.text, title="pull", markup=False)
        self._read()
        self.refresh_bindings()

    def action_cancel(self) -> None:
        if self._pull is not None:
            self._pull.job.cancel()
            self._say(f"{self._pull.entry.id}: cancelling …")

    def action_import(self) -> None:
        detail = (
            "A GGUF file or a bundle made with `kmint models bundle`. A GGUF is linked, not copied."
        )
        ask = Ask("Import which file?", detail, placeholder="smith-Q8_0.gguf",
                  command=lambda file: command_line.command("models", "import", file))  # fmt: skip
        self.app.push_screen(ask, self._import)

    def _import(self, source: str | None) -> None:
        if source is not None:
            self._say(f"reading {source} …")
            self._bring(
                paths.expanded(source), self.kmint.jobs.begin(f"importing {Path(source).name}")
            )

    @work(thread=True, exclusive=True, group="import", exit_on_error=False)
    def _bring(self, source: Path, job: Job) -> None:
        with job:
            self._import_from(source)

    def _import_from(self, source: Path) -> None:
        try:
            done = import_any(registry.load(paths.user_models_file()), source)
        except Exception as error:
            self.post_message(Refused(error))
        else:
            self.post_message(self.Moved(f"{done.entry.id}: {done.file.path} ({done.reason})"))

    def action_verify(self) -> None:
        if self.smith is not None:
            self._say(f"{self.smith.id}: reading the whole file …")
            self._verify(self.smith, self.kmint.jobs.begin(f"reading {self.smith.id}", light=True))

    @work(thread=True, exclusive=True, group="verify", exit_on_error=False)
    def _verify(self, smith: SmithState, job: Job) -> None:
        assert smith.file is not None
        try:
            with job:
                actual = digest.sha256(smith.file.path)
        except OSError as error:
            self.post_message(Refused(ModelError(f"{smith.file.path} cannot be read: {error}")))
            return
        pinned = dict(smith.entry.sha256).get(smith.file.path.name)
        compared = "as in models.toml" if pinned == actual else "NOT as in models.toml"
        said = "models.toml names no sha256 for it" if pinned is None else compared
        self.post_message(
            self.Moved(f"{smith.id}: sha256 {actual}, {said}", good=pinned in (None, actual))
        )

    def action_remove(self) -> None:
        smith = self.smith
        if smith is None:
            return
        detail = "Linked files are only unlinked; nothing that kmint did not put there is deleted."

        def answered(yes: bool | None) -> None:
            if yes:
                self._remove(smith)

        self.app.push_screen(
            Confirm(
                f"Remove {smith.id} from the store?",
                detail,
                "Remove",
                command_line.command("models", "rm", smith.id),
            ),
            answered,
        )

    @work(thread=True, exclusive=True, group="remove", exit_on_error=False)
    def _remove(self, smith: SmithState) -> None:
        try:
            removed = remove(smith.entry)
        except Exception as error:
            self.post_message(Refused(error))
        else:
            self.post_message(self.Moved(f"{smith.id}: removed {len(removed)} files"))

    def _say(self, text: str) -> None:
        self.query_one("#pulling", Static).update(text)
