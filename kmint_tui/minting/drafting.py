"""Rounds of drafts, and the smith's thread that drafts one batch after the other.

The first round asks for drafts; each further one sends rejected drafts back with the reason. A
repair prompt is the first prompt with one more line, so most of it is still in the engine's memory.
The prompts of a round are drafted together. They do not quote the draft, as in the smiths'
training. The reasons quote values of the referee's secret inputs, so only the first round depends
on the request alone. The history keeps the reasons with the parent's verdict.

The full reason is the stage and the referee's words, as in the training of the large smiths. A very
small smith knows only the words of its training, and other words spoil its answer. The brief line
is the failing case and its error, or the stage of the rejection. The form is in the smith's entry
of `models.toml`.

The smith numbers the drafts of each run from 0; here the numbers run through the session. The loop
may pause the smith while the referee times a kernel on the same GPU.
"""

from __future__ import annotations

import hashlib
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from kmint_tui.errors import EnvironmentUnfit, KmintError, ModelError, UsageError
from kmint_tui.minting.drafts import MintDraft
from kmint_tui.minting.request import MintRequest
from kmint_tui.models.registry import Feedback
from kmint_tui.smith.events import DraftDone, Event, Failed, RunDone, Token
from kmint_tui.smith.prompts import Prompt, with_feedback
from referee.verdict import Verdict

if TYPE_CHECKING:
    from kmint_tui.smith.sampling import Sampling

_FAILURES: dict[str, type[KmintError]] = {
    "environment": EnvironmentUnfit,
    "gpu": EnvironmentUnfit,
    "memory": EnvironmentUnfit,
    "model": ModelError,
    "template": ModelError,
    "request": UsageError,
}
_WRONG = re.compile(r"(\d+) of \d+ elements wrong")


@dataclass(frozen=True)
class Batch:
    """Drafts of one run of the smith, numbered from `first`; of one prompt, or of one each.

    `parents` has one entry for each draft: the draft that it repairs, None in round 0. `left` has
    the numbers that are still to be made; None means all.
    """

    prompt: Prompt | tuple[Prompt, ...]
    seed: int
    round: int
    first: int
    parents: tuple[int | None, ...]
    left: tuple[int, ...] | None = None

    @property
    def drafts(self) -> int:
        """Number of drafts."""
        return len(self.parents)

    @property
    def numbers(self) -> range:
        """The drafts' numbers."""
        return range(self.first, self.first + self.drafts)

    def parent(self, index: int) -> int | None:
        """The draft that draft number `index` repairs."""
        return self.parents[index - self.first]


def first_round(request: MintRequest) -> tuple[Batch, ...]:
    """All drafts of the request, from its own prompt and seed."""
    return (Batch(request.prompt, request.seed, 0, 0, (None,) * request.drafts),)


def repairs(
    request: MintRequest,
    round_: int,
    first: int,
    drafts: Sequence[MintDraft],
    verdicts: Mapping[int, Verdict],
) -> tuple[Batch, ...]:
    """One new draft for each rejected one of `drafts`, a duplicate included, numbered from `first`.

    Empty where none was rejected. A verdict of "error" says nothing about a draft, so there is
    nothing to repair.
    """
    reasons: dict[int, str] = {}
    for draft in sorted(drafts, key=lambda draft: draft.index):
        verdict = verdicts.get(draft.index if draft.duplicate_of is None else draft.duplicate_of)
        if verdict is not None and verdict.verdict == "rejected":
            reasons[draft.index] = feedback(draft, verdict, request.feedback)
    prompts = tuple(with_feedback(request.prompt, words) for words in reasons.values())
    return (
        (Batch(prompts, batch_seed(request.seed, first), round_, first, tuple(reasons)),)
        if reasons
        else ()
    )


def batch_seed(seed: int, first: int) -> int:
    """The seed of the run that makes the drafts from number `first` on, from the session's seed."""
    digest = hashlib.blake2b(f"{seed}/from/{first}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def feedback(draft: MintDraft, verdict: Verdict, form: Feedback) -> str:
    """The line about one rejected draft."""
    if form == "brief":
        return _brief(verdict)
    line = f"{verdict.stage}: {verdict.reason}"
    return (
        f"the answer was cut off after {draft.tokens} tokens, write a shorter kernel; {line}"
        if draft.truncated
        else line
    )


def _brief(verdict: Verdict) -> str:
    """The failing case and its error; the stage alone for anything but a wrong answer."""
    cell = next(
        (cell for cell in verdict.cells if cell.status == "fail" and cell.role != "capability"),
        None,
    )
    wrong = _WRONG.search(verdict.reason)
    if cell is None or wrong is None:
        return verdict.stage if verdict.stage in ("screen", "trace", "compile") else "incorrect"
    if cell.error is None or not math.isfinite(cell.error):
        return f"incorrect: the output holds NaN at {cell.name}; subtract the row maximum and mask the tail of the row"
    return f"incorrect: error {cell.error:.3g} at {cell.name}, {wrong.group(1)} elements over the tolerance"


def smith_failure(failed: Failed) -> KmintError:
    """The error for a failure of the smith."""
    fix = f"llama.cpp's own words are in {failed.log}" if failed.log else ""
    kind = _FAILURES.get(failed.code, KmintError)
    return kind(failed.reason, fix=fix, title="the smith failed")


class Drafter(Protocol):
    """The part of the smith (`kmint_tui.smith.Smith`) that a session needs."""

    def draft(
        self,
        prompt: Prompt | Sequence[Prompt],
        drafts: int,
        *,
        sampling: Sampling | None = None,
        seed: int = 0,
        max_tokens: int = 768,
        only: Sequence[int] = (),
    ) -> Iterator[Event]: ...

    def cancel(self) -> None: ...


@runtime_checkable
class Pausable(Protocol):
    """A smith on this machine, which can pause during a measurement."""

    @property
    def activity(self) -> Literal["idle", "paused", "drafting"]: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@dataclass(frozen=True)
class SmithEnded:
    """The smith's thread has ended; `error` holds a failure that no event reported."""

    error: Exception | None


class Drafting:
    """One session's use of the smith. All methods are for the thread of the mint loop.

    The smith's thread calls `put` with events.
    """

    def __init__(
        self, smith: Drafter, request: MintRequest, put: Callable[[Event | SmithEnded], None]
    ) -> None:
        self._smith = smith
        self._request = request
        self._put = put
        self._stopping = threading.Event()
        self.running = False

    def start(self, batches: Sequence[Batch]) -> None:
        """Draft the batches, one after the other. `SmithEnded` comes last; call `ended` then."""
        self.running = True
        threading.Thread(target=self._pump, args=(batches,), name="smith-pump", daemon=True).start()

    def ended(self) -> None:
        """Take note of `SmithEnded`."""
        self.running = False

    @property
    def stopped(self) -> bool:
        """True after a call of `stop`."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Draft no more. A second call does nothing."""
        if not self._stopping.is_set():
            self._stopping.set()
            if self.running:
                self._smith.cancel()

    def pause(self) -> None:
        """Pause the smith, if it can."""
        if self.running and isinstance(self._smith, Pausable):
            self._smith.pause()

    def resume(self) -> None:
        """Let the smith go on."""
        if isinstance(self._smith, Pausable):
            self._smith.resume()

    def silence(self) -> str:
        """The smith's use of this machine now; begins with "idle" where it uses nothing."""
        if not isinstance(self._smith, Pausable):
            return (
                "not here: it is no process of this kmint"
                if self.running
                else "idle: no draft is requested"
            )
        activity = self._smith.activity
        return {
            "idle": "idle: no draft is being written",
            "paused": "idle: halted in the middle of its drafts",
        }.get(activity, activity)

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
        """Draft one batch; False where the smith failed."""
        request = self._request
        sampling, limit = request.sampling, request.max_tokens
        only = () if batch.left is None else tuple(number - batch.first for number in batch.left)
        run = self._smith.draft(
            batch.prompt,
            batch.drafts,
            sampling=sampling,
            seed=batch.seed,
            max_tokens=limit,
            only=only,
        )
        if self._stopping.is_set():
            # A stop before this call cancelled nothing, and a silent server sends no event at which
            # the loop below would see the stop.
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
