"""Grid: one kernel timed over shapes and dtypes, as a heat map, with a list of its losing cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.message import Message
from textual.widgets import DataTable, Static

from kmint_tui import paths
from kmint_tui.core import command_line
from kmint_tui.core.grid_report import GridReport, load, stored
from kmint_tui.core.grid_run import Places, measure
from kmint_tui.core.jobs import Cancelled, Job
from kmint_tui.core.referee import no_gpu_reason
from kmint_tui.errors import EnvironmentUnfit, KmintError
from kmint_tui.screens.base import ACT, COPY, VIEW, KmintScreen, key
from kmint_tui.screens.confirm import Ask
from kmint_tui.screens.messages import Refused
from kmint_tui.widgets.heat_map import HeatMap
from kmint_tui.widgets.table import Table
from kmint_tui.widgets.themes import styled
from referee.grid import GridPoint
from referee.grid_picture import describe, summary_lines, text_map

WHAT = (
    "A grid times one kernel at every combination of rows, columns and dtype against the fastest baseline, and names every cell at "
    "which it loses."
)


class GridScreen(KmintScreen):
    """Shows one grid: stored in the history, opened from a file, or being measured. It measures
    one grid at a time.
    """

    mode = "grid"
    CSS_PATH = "grid.tcss"
    AUTO_FOCUS = "#map"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("r", "measure", "Measure", "grid.measure", "Measure the grid of a draft or file; goes on where it ended", ACT, show=True),
        key("x", "cancel", "Cancel", "grid.cancel", "Stop measuring; finished cells are kept", ACT, show=True),
        key("o", "open", "Open file", "grid.open", "Open a grid report or record from a file", VIEW, show=True),
        key("n", "losing", "Next loss", "grid.losing", "Go to the next losing cell", VIEW, show=True),
        key("left_square_bracket", "step(1)", "Older", "grid.older", "Grid before", VIEW, show=True, shown_as="["),
        key("right_square_bracket", "step(-1)", "Newer", "grid.newer", "Next grid", VIEW, show=True, shown_as="]"),
        key("y", "copy_grid", "Copy grid", "copy.grid", "Copy the grid as text", COPY),
    ]  # fmt: skip

    @dataclass
    class Found(Message):
        """All stored grids, and the draft whose grid is to be shown, if one is."""

        stored: tuple[GridReport, ...]
        wanted: str | None

    @dataclass
    class Measured(Message):
        """A cell was measured."""

        point: GridPoint

    @dataclass
    class Began(Message):
        """A grid measurement is about to begin; `report` names its kernel, `places` its cells."""

        report: GridReport
        places: Places

    @dataclass
    class Ended(Message):
        """The measuring is over; `error` is the failure, or None."""

        text: str
        error: Exception | None = None

    def __init__(self) -> None:
        super().__init__()
        self.report: GridReport | None = None
        self._stored: tuple[GridReport, ...] = ()
        self._places = Places((), ())
        self._job: Job | None = None

    def body(self) -> ComposeResult:
        yield Static("", id="empty", classes="empty", markup=False)
        yield Static("", id="head", markup=False)
        with Container(id="parts"):
            yield HeatMap("map")
            with Vertical(id="side"):
                yield Static("", id="cell", markup=False)
                with Vertical(classes="pane", id="losing-pane") as pane:
                    pane.border_title = "losing cells"
                    yield Table("losing")

    def on_mount(self) -> None:
        self.query_one("#losing", Table).head(
            ("shape", 14), ("dtype", 8), ("verdict", 8), ("ratio", 7), ("why", None)
        )
        self._show()

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self._read(None)

    def commands(self) -> list[tuple[str, str]]:
        name = self.report.name if self.report is not None else "ID"
        return [
            ("measure", command_line.command("grid", name)),
            (
                "measure and write a picture",
                command_line.command("grid", name, "--save", "grid.svg"),
            ),
            ("write a report", command_line.command("grid", name, "--save", "grid.json")),
        ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "measure":
            return self._job is None
        if action == "cancel":
            return self._job is not None
        if action == "losing":
            return self.report is not None and any(point.loses for point in self.report.points)
        if action == "copy_grid":
            return self.report is not None
        return bool(self._stored) and self._job is None if action == "step" else True

    def open_draft(self, identity: str) -> None:
        """Show the newest grid of that draft; where there is none, offer to measure one."""
        self._read(identity)

    @work(thread=True, group="grids", exit_on_error=False)
    def _read(self, wanted: str | None) -> None:
        try:
            self.post_message(self.Found(stored(paths.history_file()), wanted))
        except KmintError as error:
            self.post_message(Refused(error))

    @on(Found)
    def _found(self, message: Found) -> None:
        self._stored, wanted = message.stored, message.wanted
        found = next((report for report in message.stored if wanted in (None, report.name)), None)
        if found is not None and (wanted is not None or self.report is None):
            self.report = found
        self._show()
        if wanted is not None and found is None:
            self._ask(wanted)

    @on(Refused)
    def _refused(self, message: Refused) -> None:
        self.tell(message.error)

    def action_open(self) -> None:
        detail = "A JSON report of `kmint grid`, or the record of a grid (JSON lines)."
        self.app.push_screen(
            Ask("Open which grid report?", detail, placeholder="grid.json"), self.open_file
        )

    def open_file(self, path: str | None) -> None:
        """Show the grid of a report or record; any other file leads to an error message."""
        if path is None:
            return
        try:
            self.report = load(paths.expanded(path))
        except KmintError as error:
            self.tell(error)
            return
        self._show()
        self.query_one(HeatMap).focus()

    def action_measure(self) -> None:
        self._ask(self.report.name if self.report is not None else "")

    def _ask(self, name: str) -> None:
        if self._job is not None:
            return
        reason = no_gpu_reason()
        if reason is not None:
            fix = "o opens a grid of another machine"
            self.tell(
                EnvironmentUnfit(
                    f"a grid is measured on a GPU: {reason}",
                    fix=fix,
                    title="nothing can be timed here",
                )
            )
            return
        try:
            self.kmint.refuse_to_disturb("a grid")
        except KmintError as error:
            self.tell(error)
            return
        detail = "A draft's id, or a kernel that kmint saved. Building baselines for a shape takes up to a minute the first time."
        ask = Ask(
            "Which kernel's grid shall be measured?",
            detail,
            name,
            "12.3",
            command=lambda text: command_line.command("grid", text),
        )
        self.app.push_screen(ask, self._begin)

    def _begin(self, wanted: str | None) -> None:
        if wanted is not None and self._job is None:
            self._job = self.kmint.jobs.begin(f"measuring the grid of {wanted}", timing=True)
            self.refresh_bindings()
            self._measure(self._job, wanted)

    @work(thread=True, exclusive=True, group="grid", exit_on_error=False)
    def _measure(self, job: Job, wanted: str) -> None:
        def began(report: GridReport, places: Places) -> None:
            self.post_message(self.Began(report, places))

        with job:
            try:
                text = measure(
                    wanted, job, began, lambda point: self.post_message(self.Measured(point))
                )
                message = self.Ended(text)
            except Cancelled:
                message = self.Ended(f"{wanted}: stopped; the finished cells are kept")
            except Exception as error:
                message = self.Ended("", error)
        self.post_message(message)

    @on(Began)
    def _began(self, message: Began) -> None:
        self.report, self._places = message.report, message.places
        self._show()

    @on(Measured)
    def _measured(self, message: Measured) -> None:
        if self.report is not None:
            self.report = self.report.with_point(message.point)
            self._show()

    @on(Ended)
    def _ended(self, message: Ended) -> None:
        self._job = None
        self._places = Places((), ())
        if message.error is not None:
            self.tell(message.error)
        elif message.text:
            self.app.notify(message.text, title="grid", markup=False, timeout=10)
        self._show()
        self._read(None)

    def action_cancel(self) -> None:
        if self._job is not None:
            self._job.cancel()
            self.query_one("#head", Static).update("stopping after the cell under way …")

    def action_step(self, by: int) -> None:
        if not self._stored:
            return
        names = [report.key for report in self._stored]
        at = (
            names.index(self.report.key)
            if self.report is not None and self.report.key in names
            else -by
        )
        self.report = self._stored[(at + by) % len(self._stored)]
        self._show()

    def action_losing(self) -> None:
        losing = (
            [point for point in self.report.points if point.loses]
            if self.report is not None
            else []
        )
        if losing:
            table = self.query_one(HeatMap)
            now = table.point
            table.go_to(
                losing[(losing.index(now) + 1) % len(losing)] if now in losing else losing[0]
            )
            table.focus()

    def action_copy_grid(self) -> None:
        if self.report is not None:
            self.copy(f"{self.report.title}\n{text_map(self.report.points)}", "grid")

    def _show(self) -> None:
        report = self.report
        empty = self.query_one("#empty", Static)
        empty.display = report is None
        self.query_one("#parts").display = self.query_one("#head").display = report is not None
        self.refresh_bindings()
        if report is None:
            reason = no_gpu_reason()
            there = (
                f"Nothing can be timed here: {reason}."
                if reason
                else "r measures the grid of a draft or of a saved kernel."
            )
            empty.update(
                f"No grid was measured.\n\n{WHAT}\n\n{there} o opens a grid report of another machine."
            )
            return
        total = len(self._places)
        state = (
            f"{self._job.title}: {len(report.points)} of {total} cells (x stops)  ·  "
            if self._job is not None and total
            else ""
        )
        summary = summary_lines(report.points)[0] if report.points else ""
        self.query_one("#head", Static).update(
            "\n".join(part for part in (f"{state}{report.title}", summary) if part)
        )
        self.query_one(HeatMap).show(report.points, self._places.shapes, self._places.dtypes)
        self._show_losing([point for point in report.points if point.loses])
        self._show_cell()
        if self.focused is None:
            self.query_one(HeatMap).focus()

    def _show_losing(self, losing: Sequence[GridPoint]) -> None:
        pane = self.query_one("#losing-pane")
        pane.border_title = f"losing cells: {len(losing)}" if losing else "no losing cell"
        self.query_one("#losing", Table).fill(
            (
                f"{place}",
                (
                    f"{point.rows} x {point.columns}",
                    point.dtype,
                    styled(self.app, point.decision, point.decision),
                    f"{point.ratio:.3f}x" if point.ratio is not None else "",
                    f"against {point.bar}" if point.ratio is not None else point.reason,
                ),
            )
            for place, point in enumerate(losing)
        )

    def _show_cell(self) -> None:
        point = self.query_one(HeatMap).point
        text = describe(point) if point is not None else "not measured"
        if point is not None and point.floor_share is not None:
            text += f"; {point.floor_share:.0%} of the floor's speed (a copy of the same bytes)"
        self.query_one("#cell", Static).update(text)

    @on(events.Resize)
    def _resized(self) -> None:
        if self.report is not None:
            self._show()

    @on(DataTable.CellHighlighted, "#map")
    def _cell_highlighted(self) -> None:
        self._show_cell()

    @on(DataTable.RowSelected, "#losing")
    def _losing_selected(self, event: DataTable.RowSelected) -> None:
        losing = (
            [point for point in self.report.points if point.loses]
            if self.report is not None
            else []
        )
        if event.row_key.value is not None:
            self.query_one(HeatMap).go_to(losing[int(event.row_key.value)])
            self.query_one(HeatMap).focus()
