"""Crowns: the reigning kernel by operation and device, and the ones it reigned after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import DataTable, Static

from kmint_tui import paths
from kmint_tui.cli.referee import no_gpu_reason
from kmint_tui.crowns.records import Reign
from kmint_tui.errors import KmintError
from kmint_tui.screens.base import VIEW, KmintScreen
from kmint_tui.screens.messages import Refused
from kmint_tui.widgets.table import Table
from kmint_tui.workbench import command_line

WHAT = (
    "A crown belongs to an operation on one device with one set of versions. It changes hands only when a kernel wins a head-to-head "
    "replay against the one that holds it."
)


class CrownsScreen(KmintScreen):
    """Reads the crowns each time it is shown."""

    mode = "crowns"
    CSS_PATH = "crowns.tcss"
    AUTO_FOCUS = "#reigns"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "past", "Past", id="crowns.past", tooltip="Show or hide reigns that have ended", group=VIEW),
    ]

    @dataclass
    class Found(Message):
        """The reigns, the ended ones too when they are wanted."""

        reigns: tuple[Reign, ...]

    def __init__(self) -> None:
        super().__init__()
        self._reigns: tuple[Reign, ...] = ()
        self._past = False

    def body(self) -> ComposeResult:
        yield Static(id="empty", classes="empty", markup=False)
        yield Table("reigns")
        yield Static("", id="detail", markup=False)

    def on_mount(self) -> None:
        figures = (("time", 9), ("ratio", 7), ("draft", 7))
        self.query_one(Table).head(("operation", 24), ("device", 22), *figures, ("model", 16), ("since", 10), ("until", None))

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self._read(self._past)

    def cli_command(self) -> str | None:
        return command_line.command("crowns", *(["--past"] if self._past else []))

    def action_past(self) -> None:
        self._past = not self._past
        self._read(self._past)

    @work(thread=True, exclusive=True, group="crowns", exit_on_error=False)
    def _read(self, past: bool) -> None:
        from kmint_tui.crowns.store import Crowns

        if not paths.history_file().exists():
            self.post_message(self.Found(()))
            return
        try:
            with Crowns(paths.history_file()) as store:
                self.post_message(self.Found(store.reigns(past=past)))
        except KmintError as error:
            self.post_message(Refused(error))

    @on(Refused)
    def _refused(self, message: Refused) -> None:
        self.tell(message.error)

    @on(Found)
    def _found(self, message: Found) -> None:
        self._reigns = message.reigns
        empty = self.query_one("#empty", Static)
        empty.display = not message.reigns
        reason = no_gpu_reason()
        way = f"Nothing can be timed here: {reason}." if reason else "`kmint crowns claim ID` with a draft that won is a start."
        empty.update(f"No crowns.\n\n{WHAT}\n\n{way}")
        self.query_one(Table).display = self.query_one("#detail").display = bool(message.reigns)
        self.query_one(Table).fill((str(reign.id), _cells(reign)) for reign in message.reigns)

    @on(DataTable.RowHighlighted)
    def _highlighted(self) -> None:
        reign = next((reign for reign in self._reigns if str(reign.id) == self.query_one(Table).key), None)
        if reign is None:
            return
        crown, duel = reign.crown, reign.duel
        text = f"{crown.op} at {crown.cell} on {crown.device}, torch {crown.torch}, triton {crown.triton}; {reign.ratio:.3f}x {reign.bar}"
        if duel is not None:
            text += f"\nwon head to head by {duel['ratio']:.3f}x ({duel['low']:.3f} to {duel['high']:.3f})"
        self.query_one("#detail", Static).update(text)

    @on(DataTable.RowSelected)
    def _selected(self) -> None:
        reign = next((reign for reign in self._reigns if str(reign.id) == self.query_one(Table).key), None)
        if reign is not None:
            self.kmint.open_draft(reign.draft)


def _cells(reign: Reign) -> tuple[object, ...]:
    crown = reign.crown
    figures = (f"{reign.device_us:.1f} us", f"{reign.ratio:.2f}x", reign.draft)
    return crown.op, crown.device, *figures, reign.model, reign.began[:10], (reign.ended or "")[:10]
