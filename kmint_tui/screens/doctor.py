"""Doctor: the parts that work on this machine, and a fix for each one that fails."""

from __future__ import annotations

import os
import signal
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message
from textual.widgets import DataTable, Static

from kmint_tui.core import command_line
from kmint_tui.core.jobs import Job
from kmint_tui.doctor import examine, worst_first
from kmint_tui.doctor.finding import Finding
from kmint_tui.screens.base import ACT, COPY, KmintScreen, key
from kmint_tui.widgets.table import Table
from kmint_tui.widgets.themes import styled

if TYPE_CHECKING:
    from collections.abc import Generator

    from kmint_tui.doctor.examination import Child


class DoctorScreen(KmintScreen):
    """Examines the machine when first shown and on request; shows each finding at once."""

    mode = "doctor"
    CSS_PATH = "doctor.tcss"
    AUTO_FOCUS = "#findings"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("r", "look", "Look again", "doctor.look", "Look at everything again", ACT, show=True),
        key("x", "cancel", "Cancel", "doctor.cancel", "End looking; the findings stay", ACT, show=True),
        key("y", "copy_report", "Copy report", "copy.report", "Copy everything that was found", COPY, show=True),
    ]  # fmt: skip

    @dataclass
    class Found(Message):
        """The findings so far; `over` says whether they are complete."""

        findings: tuple[Finding, ...]
        over: bool

    def __init__(self) -> None:
        super().__init__()
        self._findings: tuple[Finding, ...] = ()
        self._job: Job | None = None

    def body(self) -> ComposeResult:
        yield Table("findings", opens=False)
        yield Static("", id="detail", markup=False)

    def commands(self) -> list[tuple[str, str]]:
        return [
            ("examine", command_line.command("doctor")),
            ("redacted report", command_line.command("doctor", "--report", "FILE")),
        ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "look":
            return self._job is None
        return self._job is not None if action == "cancel" else True

    def on_mount(self) -> None:
        self.query_one(Table).head(("what", 22), ("status", 7), ("found", None))

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        if not self._findings:
            self.action_look()

    def action_look(self) -> None:
        if self._job is None:
            started: list[Child] = []
            self._job = self.kmint.jobs.begin(
                "looking at this machine", cancelled=lambda: _end(started), light=True
            )
            self._findings = ()
            self.query_one("#detail", Static).update("looking … (x ends it)")
            self.refresh_bindings()
            self._look(self._job, started)

    def action_cancel(self) -> None:
        if self._job is not None:
            self._job.cancel()

    @work(thread=True, exclusive=True, group="doctor", exit_on_error=False)
    def _look(self, job: Job, started: list[Child]) -> None:
        found: list[Finding] = []
        looking = cast(
            "Generator[Finding, None, None]",
            examine(offline=self.kmint.offline_reason is not None, started=started),
        )
        with job, closing(looking):
            for finding in looking:
                # A finding of a closed child is about its end, not about the machine.
                if job.cancelled:
                    break
                found.append(finding)
                self.post_message(self.Found(tuple(found), False))
        self.post_message(self.Found(tuple(found), True))

    @on(Found)
    def _found(self, message: Found) -> None:
        if message.over:
            self._job = None
            self.refresh_bindings()
        self._findings = worst_first(message.findings)
        table = self.query_one(Table)
        at_top = table.cursor_row == 0
        table.fill(
            (
                item.name,
                (
                    item.name,
                    styled(self.app, item.status, "pass" if item.status == "ok" else item.status),
                    item.detail,
                ),
            )
            for item in self._findings
        )
        if at_top:
            table.move_cursor(row=0)
        self._show_detail()

    @on(DataTable.RowHighlighted)
    def _show_detail(self) -> None:
        item = next(
            (item for item in self._findings if item.name == self.query_one(Table).key), None
        )
        if item is not None:
            self.query_one("#detail", Static).update(
                f"{item.name}: {item.detail}" + (f"\nfix: {item.fix}" if item.fix else "")
            )

    def action_copy_report(self) -> None:
        lines = [
            f"{item.name}: {item.status}: {item.detail}" + (f" ({item.fix})" if item.fix else "")
            for item in self._findings
        ]
        self.copy("\n".join(lines), "report")


def _end(children: list[Child]) -> None:
    """Kill the children; the examination, which waits for one, then goes on and closes them."""
    for child in tuple(children):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
