"""The session runner: the one way in which the command line, the application and agents mint."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from kmint_tui.events import Finished, MintEvent
from kmint_tui.history.store import History
from kmint_tui.mint import Drafter, Mint
from kmint_tui.minting.request import MintRequest
from kmint_tui.minting.result import MintResult
from kmint_tui.minting.resuming import Resumed

if TYPE_CHECKING:
    from kmint_tui.core.judges import Opened


class Session:
    """One session of the mint loop. `run` belongs to one thread; `stop` may come from any other.

    `sink` gets every event, in the thread of `run`. An exception of `sink` ends the session, and
    the finished drafts stay in the history. `earlier` has the results of a session that goes on.
    """

    def __init__(
        self,
        request: MintRequest,
        sink: Callable[[MintEvent], object],
        earlier: Resumed | None = None,
    ) -> None:
        self.request = request
        self._earlier = earlier
        self._sink = sink
        self._mint: Mint | None = None
        self._stopped = False
        self._abandoned = False

    @property
    def id(self) -> int | None:
        """The session's id in the history; None before it has begun."""
        return self._mint.session_id if self._mint is not None else None

    @property
    def failure(self) -> Exception | None:
        """The reason why the session failed although some drafts were done; None otherwise."""
        return self._mint.failure if self._mint is not None else None

    @property
    def stopped(self) -> bool:
        """True after a call of `stop` or `abandon`."""
        return self._stopped

    def run(self, *, smith: Drafter, judge: Opened, history: History) -> MintResult | None:
        """Run the session to its end and return its result; None after `abandon`.

        Raises the failure of the smith or the referee where no draft was done.
        """
        mint = Mint(
            self.request,
            smith=smith,
            judge=judge.judge,
            history=history,
            times=judge.times,
            judges=judge.threads,
            racer=judge.racer,
            earlier=self._earlier,
        )
        # A stop between these two lines reaches the loop twice, which does no harm.
        self._mint = mint
        if self._stopped:
            mint.stop()
        result = None
        with closing(mint.run()) as events:
            for event in events:
                self._sink(event)
                if isinstance(event, Finished):
                    result = event.result
                if self._abandoned:
                    break
        return result

    def stop(self) -> None:
        """Stop drafting; the referee still judges the finished drafts. A signal handler may call it."""
        self._stopped = True
        if self._mint is not None:
            self._mint.stop()

    def abandon(self) -> None:
        """Stop drafting and judging; the history keeps the finished drafts."""
        self._abandoned = True
        self.stop()
