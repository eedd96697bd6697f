"""One request for a verdict while it waits, is judged, or is cancelled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kmint_tui.errors import KmintError, UsageError
from kmint_tui.service.protocol import Level, Reference, Request, refusal

if TYPE_CHECKING:
    from referee.problem import TaskName
    from referee.verdict import Verdict

COUNT_SECONDS = 0.1
"""Between two events that say how far a kernel is."""


class Judging(Protocol):
    """The part of the referee that a session needs: verdicts, from several threads at once."""

    def judge(
        self,
        source: str,
        op: str | TaskName,
        *,
        level: Level = ...,
        target: str | None = ...,
        seed: int | None = ...,
        batch_invariant: bool = ...,
        strict: bool = ...,
        tell: Callable[[str], None] = ...,
        count: Callable[[int, int], None] = ...,
    ) -> Verdict: ...


class Cancelled(Exception):
    """Raised inside a judgement that was cancelled; the referee ends its processes."""


class Work:
    """A request, and the receiver of its events. Any thread may call `say`."""

    def __init__(self, request: Request, say: Callable[[dict[str, Any]], None]) -> None:
        self.request = request
        self._say = say
        self._cancelled = threading.Event()
        self._said = 0.0

    def cancel(self) -> None:
        """End it at its next step or case."""
        self._cancelled.set()

    def say(self, event: str, **content: Any) -> None:
        """Send an event."""
        self._say({"id": self.request.id, "event": event, **content})

    def judged_by(self, referee: Judging) -> None:
        """Judge the request, and send the result."""
        try:
            from kmint_tui.core.referee import check_target
            from kmint_tui.core.task import with_long_rows

            self._check()
            self.say("begun")
            asked = self.request
            task = _task(asked.op, asked.reference, asked.shapes)
            task = with_long_rows(task) if asked.wide else task
            target = check_target(asked.target)
            self._check()
            verdict = referee.judge(
                asked.source,
                task,
                level=asked.level,
                target=target,
                seed=asked.seed,
                batch_invariant=asked.batch_invariant,
                strict=asked.strict,
                tell=self._tell,
                count=self._count,
            )
            self._check()
        except Cancelled:
            self.say("cancelled")
        except KmintError as error:
            self._say({"id": self.request.id, **refusal(error)})
        except Exception as error:
            # The session continues with its other requests.
            said = KmintError(
                f"{type(error).__name__}: {error}",
                title="a fault in kmint itself",
                fix="report it, with the kernel",
            )
            self._say({"id": self.request.id, **refusal(said)})
        else:
            self.say("verdict", verdict=verdict.to_json())

    def _check(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled

    def _tell(self, step: str) -> None:
        self._check()
        self.say("doing", step=step)

    def _count(self, done: int, total: int) -> None:
        self._check()
        now = time.monotonic()
        if now - self._said >= COUNT_SECONDS or done == total:
            self._said = now
            self.say("cases", done=done, total=total)


def _task(op: str | None, reference: Reference | None, shapes: tuple[str, ...]) -> str | TaskName:
    """The operation or reference of the request. Raises KmintError."""
    from kmint_tui.core.task import wanted_task
    from referee.reference.asked import Asked
    from referee.reference.grammar import parse_fixed, parse_inputs
    from referee.reference.unusable import InputError

    if reference is None:
        return wanted_task(op, None, shapes)[1]
    try:
        parse_inputs(reference.inputs)
        parse_fixed(reference.fixed)
    except InputError as error:
        raise UsageError(str(error), title="inputs not usable") from error
    return wanted_task(
        None, Asked(reference.file, reference.function, reference.inputs, reference.fixed)
    )[1]
