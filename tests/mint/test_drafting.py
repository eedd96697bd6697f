"""The smith's thread: a stop reaches the smith, whenever it comes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue

from kmint_tui.minting.drafting import Drafting, SmithEnded, first_round
from kmint_tui.models.store import Choice
from kmint_tui.smith.events import Event
from tests.mint.doubles import run_done
from tests.mint.test_mint import model, request

__all__ = ["model"]


class SilentSmith:
    """Is stopped while it is being asked, forgets cancels from before that, and gives no event
    until it is cancelled.
    """

    def __init__(self) -> None:
        self.drafting: Drafting | None = None
        self._cancelled = threading.Event()

    def draft(self, prompt: object, drafts: int, **settings: object) -> Iterator[Event]:
        assert self.drafting is not None
        self.drafting.stop()
        self._cancelled.clear()
        return self._run()

    def cancel(self) -> None:
        self._cancelled.set()

    def _run(self) -> Iterator[Event]:
        self._cancelled.wait()
        yield run_done(cancelled=True)


def test_a_stop_while_the_smith_is_being_asked_is_not_lost(model: Choice) -> None:
    wanted = request(model, 2)
    said: SimpleQueue[object] = SimpleQueue()
    smith = SilentSmith()
    smith.drafting = Drafting(smith, wanted, said.put)
    smith.drafting.start(first_round(wanted))
    assert [said.get(), said.get()] == [run_done(cancelled=True), SmithEnded(None)]
