"""Notes on stderr that name a slow step of a command."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kmint_tui.cli.streams import Diagnostics

if TYPE_CHECKING:
    from referee.reference.asked import Asked

FIRST_SECONDS, AGAIN_SECONDS = 5.0, 30.0


class SlowStepNotice:
    """A context that notes a step after `first` seconds, and then every `again` seconds (above 0)."""

    def __init__(
        self, err: Diagnostics, *, first: float = FIRST_SECONDS, again: float = AGAIN_SECONDS
    ) -> None:
        self._err, self._first, self._again = err, first, again
        self._changed = threading.Condition()
        self._step: str | None = None
        self._since = self._due = 0.0
        self._over = False
        self._thread = threading.Thread(target=self._watch, name="slow-steps", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join()

    def reading(self, reference: Asked | None) -> None:
        """Begin to prepare the task; a reference of the user runs at every shape of the verdict."""
        self.doing(
            f"running {reference} at the shapes it is judged at" if reference else "getting ready"
        )

    def doing(self, step: str) -> None:
        """Begin a step, as in "still ..."; the same step again keeps its clock."""
        with self._changed:
            if step != self._step:
                self._step, self._since = step, time.monotonic()
                self._due = self._since + self._first
                self._changed.notify()

    def resting(self) -> None:
        """No step runs until the next one."""
        with self._changed:
            self._step = None

    def _watch(self) -> None:
        with self._changed:
            while not self._over:
                left = self._due - time.monotonic() if self._step else None
                if left is None or left > 0:
                    self._changed.wait(left)
                    continue
                self._err.note(f"still {self._step} ({time.monotonic() - self._since:.0f} s)")
                self._due = time.monotonic() + self._again
