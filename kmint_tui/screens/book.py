"""Book: the best verified kernels by operation and shape, with their figures and their code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.message import Message
from textual.widgets import DataTable, Static

from kmint_tui import paths
from kmint_tui.book import store
from kmint_tui.book.records import Entry
from kmint_tui.core import command_line
from kmint_tui.core.book.reading import OfOperation, OpenBook, facts, open_book, share
from kmint_tui.core.book.saving import entries_of, save_here
from kmint_tui.core.referee import no_gpu_reason
from kmint_tui.errors import KmintError
from kmint_tui.minting.reasons import counted
from kmint_tui.minting.standalone import standalone
from kmint_tui.screens.base import ACT, COPY, VIEW, KmintScreen, key
from kmint_tui.screens.confirm import Ask
from kmint_tui.screens.messages import answer
from kmint_tui.screens.save import Saving
from kmint_tui.widgets.code import CodeView
from kmint_tui.widgets.screen_bars import UNTIMED_SIGN
from kmint_tui.widgets.table import Table
from kmint_tui.widgets.themes import styled
from referee.asked_shape import SHORT

WHAT = (
    "A book holds the best verified kernel of each operation, shape and dtype, for one kind of GPU. A kernel of a book is judged here "
    "before it is saved."
)


class BookScreen(KmintScreen):
    """Reads the books each time it is shown. It shows the book of one device."""

    mode = "book"
    CSS_PATH = "book.tcss"
    AUTO_FOCUS = "#operations"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("s", "save", "Save", "book.save", "Save the kernel under the cursor, or all of the operation, into a folder", ACT, show=True),
        key("o", "take", "Import", "book.import", "Take the book in a file of another machine", ACT, show=True),
        key("v", "editor", "Editor", "book.editor", "Open the code in $EDITOR; an edited kernel can be judged", ACT),
        key("left_square_bracket", "step(-1)", "Device before", "book.before", "Book of the device before", VIEW, show=True, shown_as="["),
        key("right_square_bracket", "step(1)", "Next device", "book.next", "Book of the next device", VIEW, show=True, shown_as="]"),
        key("escape", "back", "Back", "book.back", "Back to the operations", VIEW),
        key("y", "copy_code", "Copy code", "copy.code", "Copy the code", COPY),
    ]  # fmt: skip

    @dataclass
    class Found(Message):
        """The book, None where there is none, or the reason why it cannot be read."""

        book: OpenBook | None
        error: KmintError | None = None

    @dataclass
    class Taken(Message):
        """A book was imported, or the reason why not."""

        text: str
        error: Exception | None = None

    def __init__(self) -> None:
        super().__init__()
        self._open: OpenBook | None = None
        self._operations: tuple[OfOperation, ...] = ()

    def body(self) -> ComposeResult:
        yield Static("", id="empty", classes="empty", markup=False)
        yield Static("", id="head", markup=False)
        with Container(id="parts"):
            yield Table("operations")
            with Vertical(id="side"):
                yield Table("entries")
                yield Static("", id="detail", markup=False)
                code = CodeView(id="code", classes="pane")
                code.border_title = "code"
                yield code

    def on_mount(self) -> None:
        self.query_one("#empty").display = False
        self.query_one("#parts").display = False
        self.query_one("#operations", Table).head(
            ("operation", 24), ("shapes", 6), ("mean", 7), ("losses", 6)
        )
        self.query_one("#entries", Table).head(
            ("shape", 12), ("dtype", 5), ("verdict", 8), ("ratio", 7), ("floor", 5), ("by", None)
        )

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self._read(self._open.book.device if self._open is not None else None)

    def commands(self) -> list[tuple[str, str]]:
        chosen, found = self.chosen, list[tuple[str, str]]()
        if chosen:
            device = self._device_option
            found = [
                ("save", command_line.book("save", chosen, "--to", "DIR", device=device)),
                ("show", command_line.book("show", chosen, device=device)),
                ("list", command_line.command("book", "ls")),
                ("export", command_line.command("book", "export", "FILE")),
            ]
        found.append(("import", command_line.command("book", "import", "FILE")))
        if no_gpu_reason() is None:
            found.append(("build", command_line.command("book", "build", "--budget", "10")))
            if chosen:
                found.append(("judge again", command_line.command("book", "rejudge")))
        return found

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("save", "copy_code", "editor"):
            return bool(self.chosen)
        if action == "step":
            return self._open is not None and len(self._open.devices) > 1
        return True

    @property
    def chosen(self) -> Sequence[Entry]:
        """The entry under the cursor; all of the operation while the operations have the focus."""
        of, entry = self._operation, self._entry
        if self._open is None or of is None:
            return ()
        if entry is None or self.focused is self.query_one("#operations"):
            return entries_of(self._open.book, of.op, (), self._open.origins)
        return (entry,)

    @property
    def _operation(self) -> OfOperation | None:
        # Textual checks the keys before it composes the screen.
        tables = self.query("#operations")
        key = tables.first(Table).key if tables else None
        return next((one for one in self._operations if one.op == key), None)

    @property
    def _entry(self) -> Entry | None:
        of = self._operation
        if of is None:
            return None
        key = self.query_one("#entries", Table).key
        return next((one for one in of.entries if str(one.place) == key), None)

    @property
    def _device_option(self) -> str | None:
        """The device, where a command would not find its book without the option."""
        several = self._open is not None and len(self._open.devices) > 1
        return self._open.book.device if several and self._open is not None else None

    @work(thread=True, exclusive=True, group="books", exit_on_error=False)
    def _read(self, device: str | None) -> None:
        try:
            answer(self, self.Found(open_book(device)))
        except KmintError as error:
            answer(self, self.Found(None, error))

    @on(Found)
    def _found(self, message: Found) -> None:
        found = self._open = message.book
        self._operations = found.operations if found is not None else ()
        self.query_one("#parts").display = self.query_one("#head").display = found is not None
        empty, reason = self.query_one("#empty", Static), no_gpu_reason()
        empty.display = found is None
        if found is None:
            way = (
                f"None can be built here: {reason}."
                if reason
                else "`kmint book build --budget 10` builds one on this GPU in ten minutes."
            )
            error = message.error
            what = (
                f"{error.title}: {error.message}\n\n{error.fix}" if error else f"No book.\n\n{WHAT}"
            )
            empty.update(f"{what}\n\n{way} o takes the book of another machine from a file.")
        else:
            self._show_head(found, reason)
            self._show_operations()
        self.refresh_bindings()

    def _show_head(self, found: OpenBook, no_gpu: str | None) -> None:
        kernels = counted(len(found.book.entries), "kernel")
        of = counted(len(self._operations), "operation")
        text = f"{found.book.device}: {kernels} of {of}, {found.origin}"
        if len(found.devices) > 1:
            place = found.devices.index(found.book.device) + 1
            text += f"; device {place} of {len(found.devices)} ([ ])"
        if no_gpu is not None:
            text += f"\n{UNTIMED_SIGN} Kernels are judged by Triton's interpreter and not timed here: {no_gpu}"
        self.query_one("#head", Static).update(text)

    def _show_operations(self) -> None:
        self.query_one("#operations", Table).fill(
            (
                of.op,
                (
                    of.op,
                    str(len(of.entries)),
                    f"{of.mean:.3f}x",
                    styled(self.app, str(len(of.lost)), "loss") if of.lost else "",
                ),
            )
            for of in self._operations
        )
        self._show_entries()

    @on(DataTable.RowHighlighted, "#operations")
    def _show_entries(self) -> None:
        of = self._operation
        self.query_one("#entries", Table).fill(
            (
                str(one.place),
                (
                    one.shape,
                    SHORT.get(one.dtype, one.dtype),
                    styled(self.app, one.figures.verdict, one.figures.verdict),
                    f"{one.figures.ratio:.3f}x",
                    share(one),
                    one.maker,
                ),
            )
            for one in (of.entries if of is not None else ())
        )
        self._show_entry()

    @on(DataTable.RowHighlighted, "#entries")
    def _show_entry(self) -> None:
        entry, code = self._entry, self.query_one("#code", CodeView)
        if entry is None or self._open is None:
            code.show("")
            self.query_one("#detail", Static).update("")
            return
        said = facts(entry, self._open.origins)
        self.query_one("#detail", Static).update(
            "\n".join(f"{name}: {text}" for name, text in said if text)
        )
        code.border_title = str(entry.place)
        code.show(standalone(self._open.book.source(entry)), top=True)
        self.refresh_bindings()

    @on(DataTable.RowSelected)
    def _selected(self, event: DataTable.RowSelected) -> None:
        self.query_one("#entries" if event.data_table.id == "operations" else "#code").focus()

    def action_back(self) -> None:
        self.query_one(
            "#entries" if self.focused is self.query_one("#code") else "#operations"
        ).focus()

    def action_step(self, by: int) -> None:
        if self._open is not None:
            self._read(self._open.other(by))

    def action_save(self) -> None:
        chosen, found = self.chosen, self._open
        if not chosen or found is None:
            return
        try:
            self.kmint.refuse_to_disturb("saving from a book")
        except KmintError as error:
            self.tell(error)
            return
        entries, device = tuple(chosen), self._device_option
        what = str(entries[0].place) if len(entries) == 1 else entries[0].op
        jobs, engine = self.kmint.jobs, self.kmint.engine

        def save(folder: Path) -> tuple[str, ...]:
            with jobs.begin(f"saving {what} from the book", timing=True):
                return save_here(found.book, entries, engine.referee(), folder)

        self.app.push_screen(
            Saving(
                f"{what} from the book",
                save,
                lambda folder: command_line.book("save", entries, "--to", folder, device=device),
            )
        )

    def action_take(self) -> None:
        detail = "A file that `kmint book export` wrote. Kernels that were built here stay."
        ask = Ask(
            "Take which book?",
            detail,
            placeholder="h200.json",
            command=lambda text: command_line.command("book", "import", text),
        )

        def answered(text: str | None) -> None:
            if text is not None:
                self._take(paths.expanded(text))

        self.app.push_screen(ask, answered)

    @work(thread=True, exclusive=True, group="import", exit_on_error=False)
    def _take(self, file: Path) -> None:
        try:
            found = store.foreign(file)
            store.take(found)
            message = self.Taken(f"{counted(len(found.entries), 'kernel')} for {found.device}")
        except Exception as error:
            message = self.Taken("", error)
        self.post_message(message)

    @on(Taken)
    def _taken(self, message: Taken) -> None:
        if message.error is not None:
            self.tell(message.error)
            return
        self.app.notify(message.text, title="imported", markup=False)
        self._read(self._open.book.device if self._open is not None else None)

    def action_editor(self) -> None:
        if (entry := self._entry) is not None and self._open is not None:
            source = standalone(self._open.book.source(entry))
            self.edit(source, f"book-{entry.op}", entry.op)

    def action_copy_code(self) -> None:
        if (entry := self._entry) is not None and self._open is not None:
            self.copy(standalone(self._open.book.source(entry)), str(entry.place))
