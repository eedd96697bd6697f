"""The list on the empty Mint screen: recent sessions, an own function, common operations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from textual import on, work
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from kmint_tui import paths
from kmint_tui.errors import KmintError
from kmint_tui.history.reading import read_history
from kmint_tui.history.records import Summary
from referee.ops.catalogue import get

COMMON = ("softmax", "rmsnorm", "add_rmsnorm", "layernorm", "swiglu", "rope", "cross_entropy")
OWN = "own:"
OPERATION = "op:"
SESSION = "session:"


RECENT = 5
"""Number of sessions that the list offers."""


class StartList(OptionList):
    """An option's id is OWN, OPERATION with a name, or SESSION with a number."""

    @dataclass
    class Read(Message):
        """The newest sessions of the history."""

        sessions: tuple[Summary, ...]

    def on_mount(self) -> None:
        self.show(())

    @work(thread=True, exclusive=True, group="sessions", exit_on_error=False)
    def read(self) -> None:
        """Read the history and offer its newest sessions."""
        # A damaged history is reported on the History screen.
        with suppress(KmintError):
            if paths.history_file().exists():
                with read_history(paths.history_file()) as history:
                    self.post_message(self.Read(history.summaries(limit=RECENT)))

    @on(Read)
    def _read(self, message: Read) -> None:
        message.stop()
        self.show(message.sessions)

    def show(self, sessions: Sequence[Summary]) -> None:
        """Offer these sessions first, then an own function, then operations."""
        self.clear_options()
        if sessions:
            self._title("Open a recent session")
            for one in sessions:
                self._offer(f"{SESSION}{one.id}", f"{one.id}  {one.op}", _outcome(one))
        self._title("Bring your own")
        self._offer(OWN, "your PyTorch function", "a file, a function in it, and its input shapes")
        self._title("Mint a common operation")
        for name in COMMON:
            self._offer(f"{OPERATION}{name}", name, get(name).title)
        self.action_first()

    def _title(self, text: str) -> None:
        self.add_option(Option(Content.styled(text, "bold $primary"), disabled=True))

    def _offer(self, identity: str, name: str, detail: str) -> None:
        shown = Content.assemble(f"  {name:<24}", (f" {detail}", "$text-muted"))
        self.add_option(Option(shown, id=identity))


def _outcome(session: Summary) -> str:
    best = f", best {session.ratio:.2f}x" if session.ratio is not None else ""
    return f"{session.passed} of {session.drafted} drafts correct{best}, {session.state}"
