"""Doctor: what works on this machine, what does not, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import DataTable, Static

from kmint_tui.screens.base import ACT, COPY, KmintScreen
from kmint_tui.widgets.table import Table
from kmint_tui.widgets.themes import styled
from kmint_tui.workbench.checkup import Finding, findings


class DoctorScreen(KmintScreen):
    """Looks each time it is shown."""

    mode = "doctor"
    CSS_PATH = "doctor.tcss"
    AUTO_FOCUS = "#findings"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "look", "Look again", id="doctor.look", tooltip="Look at everything again", group=ACT),
        Binding("y", "copy_report", "Copy report", id="copy.report", tooltip="Copy everything that was found", group=COPY),
    ]

    @dataclass
    class Found(Message):
        """Everything was looked at."""

        findings: tuple[Finding, ...]

    def __init__(self) -> None:
        super().__init__()
        self._findings: tuple[Finding, ...] = ()

    def body(self) -> ComposeResult:
        yield Table("findings", opens=False)
        yield Static("", id="detail", markup=False)

    def on_mount(self) -> None:
        self.query_one(Table).head(("what", 10), ("status", 7), ("found", None))

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self.action_look()

    def action_look(self) -> None:
        self._look()

    @work(thread=True, exclusive=True, group="doctor", exit_on_error=False)
    def _look(self) -> None:
        self.post_message(self.Found(tuple(findings())))

    @on(Found)
    def _found(self, message: Found) -> None:
        self._findings = message.findings
        self.query_one(Table).fill(
            (item.name, (item.name, styled(self.app, item.status, "pass" if item.status == "ok" else item.status), item.detail))
            for item in message.findings
        )

    @on(DataTable.RowHighlighted)
    def _highlighted(self) -> None:
        item = next((item for item in self._findings if item.name == self.query_one(Table).key), None)
        if item is not None:
            self.query_one("#detail", Static).update(f"{item.name}: {item.detail}" + (f"\nfix: {item.fix}" if item.fix else ""))

    def action_copy_report(self) -> None:
        lines = [f"{item.name}: {item.status}: {item.detail}" + (f" ({item.fix})" if item.fix else "") for item in self._findings]
        self.copy("\n".join(lines), "report")
