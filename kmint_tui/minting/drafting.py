"""The smith at work: a thread that has one batch after the other drafted, and passes on what the smith says.

The smith numbers the drafts of each run from 0; here they are numbered through the session. The smith may be halted while a
kernel is timed on the GPU that both use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from kmint_tui.minting.request import MintRequest
from kmint_tui.minting.rounds import Batch
from kmint_tui.smith.events import DraftDone, Event, Failed, RunDone, Token

if TYPE_CHECKING:
    from kmint_tui.smith.prompts import Prompt
    from kmint_tui.smith.sampling import Sampling


class Drafter(Protocol):
    """What is needed of the smith (`kmint_tui.smith.Smith`)."""

    def draft(
        self,
        prompt: Prompt | Sequence[Prompt],
        drafts: int,
        *,
        sampling: Sampling | None = None,
        seed: int = 0,
        max_tokens: int = 768,
    ) -> Iterator[Event]: ...

    def cancel(self) -> None: ...


@runtime_checkable
class Pausable(Protocol):
    """A smith on this machine, which can stand still while something is measured."""

    @property
    def activity(self) -> Literal["idle", "paused", "drafting"]: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@dataclass(frozen=True)
class SmithEnded:
    """The smith's thread is through; `error` is set when it failed in a way it has no event for."""

    error: Exception | None


class Drafting:
    """One session's use of the smith. All methods are for the thread of the mint loop; events go to `put` from another."""

    def __init__(self, smith: Drafter, request: MintRequest, put: Callable[[Event | SmithEnded], None]) -> None:
        self._smith = smith
        self._request = request
        self._put = put
        self._stopping = threading.Event()
        self.running = False

    def start(self, batches: Sequence[Batch]) -> None:
        """Have the batches drafted, one after the other; ends with `SmithEnded`, after which `ended` is to be called."""
        self.running = True
        threading.Thread(target=self._pump, args=(batches,), name="smith-pump", daemon=True).start()

    def ended(self) -> None:
        """Take note of `SmithEnded`."""
        self.running = False

    @property
    def stopped(self) -> bool:
        """True once no more is to be drafted."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Draft no more. May be called more than once."""
        if not self._stopping.is_set():
            self._stopping.set()
            if self.running:
                self._smith.cancel()

    def pause(self) -> None:
        """Have the smith stand still, if it can."""
        if self.running and isinstance(self._smith, Pausable):
            self._smith.pause()

    def resume(self) -> None:
        """Let it go on."""
        if isinstance(self._smith, Pausable):
            self._smith.resume()

    def silence(self) -> str:
        """What is known, at this moment, of the smith's use of this machine; begins with "idle" when it uses nothing."""
        if not isinstance(self._smith, Pausable):
            return "elsewhere: it is not a process of this kmint" if self.running else "idle: no draft is asked for"
        activity = self._smith.activity
        return {"idle": "idle: no draft is being written", "paused": "idle: halted in the middle of its drafts"}.get(activity, activity)

    def _pump(self, batches: Sequence[Batch]) -> None:
        error: Exception | None = None
        try:
            for batch in batches:
                if self._stopping.is_set() or not self._one(batch):
                    break
        except Exception as caught:
            error = caught
        self._put(SmithEnded(error))

    def _one(self, batch: Batch) -> bool:
        """Draft one batch; False when the smith failed."""
        request = self._request
        sampling, limit = request.sampling, request.max_tokens
        run = self._smith.draft(batch.prompt, batch.drafts, sampling=sampling, seed=batch.seed, max_tokens=limit)
        if self._stopping.is_set():
            # A stop that came before this call cancelled nothing, and a server that is silent gives no event to see it at.
            self._smith.cancel()
        for event in run:
            self._put(_numbered(event, batch.first))
            if isinstance(event, Failed):
                return False
            # A stop that came while the model was being loaded found no run to cancel.
            if self._stopping.is_set() and not isinstance(event, (DraftDone, RunDone)):
                self._smith.cancel()
        return True


def _numbered(event: Event, first: int) -> Event:
    if first and isinstance(event, (Token, DraftDone)):
        return replace(event, draft=event.draft + first)
    return event
