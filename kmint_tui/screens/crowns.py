"""Crowns: the reigning kernel by operation and device, its predecessors, and the drafts that could
challenge it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.message import Message
from textual.widgets import DataTable, Static

from kmint_tui import paths
from kmint_tui.core import command_line
from kmint_tui.core.crown_status import CrownStatus, claim, claim_text, crown_statuses
from kmint_tui.core.jobs import Cancelled, Job
from kmint_tui.core.referee import no_gpu_reason
from kmint_tui.crowns.records import Claim, Reign
from kmint_tui.errors import KmintError
from kmint_tui.screens.base import ACT, VIEW, KmintScreen, key
from kmint_tui.screens.confirm import Confirm
from kmint_tui.screens.messages import Refused, answer
from kmint_tui.widgets.table import Table
from kmint_tui.widgets.themes import styled

WHAT = (
    "A crown belongs to an operation on one device with one set of versions. It changes hands only when a kernel wins a head-to-head "
    "replay against the one that holds it."
)


class CrownsScreen(KmintScreen):
    """Reads the crowns each time it is shown. It runs one claim at a time."""

    mode = "crowns"
    CSS_PATH = "crowns.tcss"
    AUTO_FOCUS = "#crown-list"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("c", "claim", "Claim", "crowns.claim", "Let the draft under the cursor, or the fastest one, claim the crown", ACT, show=True),
        key("x", "cancel", "Cancel", "crowns.cancel", "Cancel the claim; the crown stays where it is", ACT, show=True),
        key("escape", "back", "Back", "crowns.back", "Back to the crowns", VIEW),
    ]  # fmt: skip

    @dataclass
    class Found(Message):
        """All crowns."""

        statuses: tuple[CrownStatus, ...]

    @dataclass
    class Claimed(Message):
        """A claim is over, with its result or its failure; a cancelled claim has neither."""

        text: str
        error: Exception | None = None

    def __init__(self) -> None:
        super().__init__()
        self._statuses: tuple[CrownStatus, ...] = ()
        self._job: Job | None = None

    def body(self) -> ComposeResult:
        yield Static(id="empty", classes="empty", markup=False)
        with Container(id="lists"):
            yield Table("crown-list")
            yield Static("", id="detail", markup=False)
            with Container(id="under"):
                for name, title in (("challengers", "challengers"), ("reigns", "reigns")):
                    with Vertical(classes="pane", id=f"{name}-pane") as pane:
                        pane.border_title = title
                        yield Table(name)

    def on_mount(self) -> None:
        times = (("time", 9), ("ratio", 7))
        self._table("crown-list").head(
            ("operation", 24),
            ("holder", 8),
            *times,
            ("challengers", 11),
            ("model", 16),
            ("device", None),
        )
        self._table("challengers").head(("draft", 8), *times, ("model", None))
        self._table("reigns").head(("draft", 8), *times, ("from", 10), ("to", 10), ("won by", None))

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self._read()

    def commands(self) -> list[tuple[str, str]]:
        found = [("list", command_line.command("crowns", "--past"))]
        challenger, holder = self._challenger, self._status.holder if self._status else None
        if challenger is not None:
            found.insert(0, ("claim", command_line.command("crowns", "claim", challenger.draft)))
        if holder is not None:
            found.append(("show holder", command_line.command("history", "show", holder.draft)))
        return [*found, ("report", command_line.command("crowns", "--report", "crowns.html"))]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "claim":
            return self._job is None and self._challenger is not None
        return self._job is not None if action == "cancel" else True

    def claim(self, identity: str) -> None:
        """Ask whether this draft should claim its crown, and run the claim after a yes."""
        try:
            self.kmint.refuse_to_disturb("a duel")
        except KmintError as error:
            self.tell(error)
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self._job = self.kmint.jobs.begin(f"claiming a crown for {identity}", timing=True)
                self._tell_detail()
                self.refresh_bindings()
                self._claim(self._job, identity)

        command = command_line.command("crowns", "claim", identity)
        detail = "If the crown is held, both kernels are replayed head to head on the GPU, which takes some seconds."
        self.app.push_screen(
            Confirm(f"Let {identity} claim its crown?", detail, "Claim", command), answered
        )

    def action_claim(self) -> None:
        if self._challenger is not None:
            self.claim(self._challenger.draft)

    def action_cancel(self) -> None:
        if self._job is not None:
            self._job.cancel()
            self.query_one("#detail", Static).update(
                "cancelling: the duel under way still ends, and does not count"
            )

    def action_back(self) -> None:
        self._table("crown-list").focus()

    @property
    def _status(self) -> CrownStatus | None:
        tables = self.query("#crown-list")
        key = tables.first(Table).key if tables else None
        return next((status for status in self._statuses if status.key == key), None)

    @property
    def _challenger(self) -> Claim | None:
        """The challenger under the cursor while the challengers have the focus, else the fastest
        one.
        """
        status = self._status
        if status is None or not status.challengers:
            return None
        table = self._table("challengers")
        chosen = table.key if self.focused is table else None
        return next(
            (claim for claim in status.challengers if claim.draft == chosen), status.challengers[0]
        )

    def _table(self, name: str) -> Table:
        return self.query_one(f"#{name}", Table)

    @work(thread=True, exclusive=True, group="crowns", exit_on_error=False)
    def _read(self) -> None:
        try:
            answer(self, self.Found(crown_statuses(paths.history_file())))
        except KmintError as error:
            answer(self, Refused(error))

    @work(thread=True, exclusive=True, group="claim", exit_on_error=False)
    def _claim(self, job: Job, identity: str) -> None:
        with job:
            try:
                message = self.Claimed(claim_text(claim(paths.history_file(), identity, job)))
            except Cancelled:
                message = self.Claimed("")
            except Exception as error:
                message = self.Claimed("", None if job.cancelled else error)
        self.post_message(message)

    @on(Refused)
    def _refused(self, message: Refused) -> None:
        self.tell(message.error)

    @on(Claimed)
    def _claimed(self, message: Claimed) -> None:
        self._job = None
        if message.error is not None:
            self.tell(message.error)
        elif message.text:
            self.app.notify(message.text, title="crowns", markup=False, timeout=10)
        self._read()

    @on(Found)
    def _found(self, message: Found) -> None:
        self._statuses = message.statuses
        empty = self.query_one("#empty", Static)
        empty.display = not message.statuses
        reason = no_gpu_reason()
        way = (
            f"Nothing can be timed here: {reason}."
            if reason
            else "A draft that won over every baseline can claim one: c on its screen."
        )
        empty.update(f"No crowns.\n\n{WHAT}\n\n{way}")
        self.query_one("#lists").display = bool(message.statuses)
        self._table("crown-list").fill(
            (status.key, self._cells(status)) for status in message.statuses
        )
        self._show()

    @on(DataTable.RowHighlighted, "#crown-list")
    def _highlighted(self) -> None:
        self._show()

    def _show(self) -> None:
        status = self._status
        challengers, reigns = (
            (status.challengers, status.reigns) if status is not None else ((), ())
        )
        self._table("challengers").fill(
            (one.draft, (one.draft, *_times(one), one.model)) for one in challengers
        )
        self._table("reigns").fill(
            (
                str(reign.id),
                (
                    reign.draft,
                    *_times(reign),
                    reign.began[:10],
                    (reign.ended or "now")[:10],
                    _won(reign),
                ),
            )
            for reign in reigns
        )
        self._tell_detail()
        self.refresh_bindings()

    def _tell_detail(self) -> None:
        status = self._status
        if self._job is not None:
            self.query_one("#detail", Static).update(f"{self._job.title} … (x cancels)")
        elif status is not None:
            crown, holder = status.crown, status.holder
            text = f"{crown.op} at {crown.cell} on {crown.device}, torch {crown.torch}, triton {crown.triton}"
            held = (
                f"{holder.ratio:.3f}x {holder.bar}, {_won(holder)}"
                if holder
                else "vacant: the first that claims it gets it"
            )
            self.query_one("#detail", Static).update(f"{text}\n{held}")

    @on(DataTable.RowHighlighted, "#challengers")
    def _challenger_highlighted(self) -> None:
        self.refresh_bindings()

    @on(DataTable.RowSelected)
    def _selected(self, event: DataTable.RowSelected) -> None:
        status, key = self._status, event.row_key.value
        if status is None or key is None:
            return
        if event.data_table.id == "challengers":
            self.kmint.open_draft(key)
            return
        reign = (
            status.holder
            if event.data_table.id == "crown-list"
            else next((one for one in status.reigns if str(one.id) == key), None)
        )
        if reign is not None:
            self.kmint.open_draft(reign.draft)

    def _cells(self, status: CrownStatus) -> tuple[object, ...]:
        crown, holder = status.crown, status.holder
        count = str(len(status.challengers) or "")
        if holder is None:
            return crown.op, styled(self.app, "vacant", "warn"), "", "", count, "", crown.device
        return (
            crown.op,
            styled(self.app, holder.draft, "win"),
            *_times(holder),
            count,
            holder.model,
            crown.device,
        )


def _times(one: Reign | Claim) -> tuple[str, str]:
    return f"{one.device_us:.1f} us", f"{one.ratio:.2f}x"


def _won(reign: Reign) -> str:
    duel = reign.duel
    return (
        "vacant crown"
        if duel is None
        else f"{duel['ratio']:.3f}x ({duel['low']:.3f} to {duel['high']:.3f}) head to head"
    )
