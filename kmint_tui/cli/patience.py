"""Says on stderr what is being waited for, when a step of a command takes so long that one would wonder."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from kmint_tui.cli.diagnostics import Diagnostics

FIRST_SECONDS, AGAIN_SECONDS = 5.0, 30.0


class Patience:
    """A context that speaks `first` seconds after a step began, and then every `again` seconds, which must be above 0."""

    def __init__(self, err: Diagnostics, *, first: float = FIRST_SECONDS, again: float = AGAIN_SECONDS) -> None:
        self._err, self._first, self._again = err, first, again
        self._changed = threading.Condition()
        self._step: str | None = None
        self._since = self._due = 0.0
        self._over = False
        self._thread = threading.Thread(target=self._watch, name="patience", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join()

    def reading(self, reference: str | None) -> None:
        """The task is made ready: a reference of the user's is run for that, at every shape it will be judged at."""
        self.doing(f"running {reference} at the shapes it is judged at" if reference else "getting ready")

    def doing(self, step: str) -> None:
        """What is done from now on, as in "still ..."; the same step again goes on where it was."""
        with self._changed:
            if step != self._step:
                self._step, self._since = step, time.monotonic()
                self._due = self._since + self._first
                self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while not self._over:
                left = self._due - time.monotonic() if self._step else None
                if left is None or left > 0:
                    self._changed.wait(left)
                    continue
                self._err.note(f"still {self._step} ({time.monotonic() - self._since:.0f} s)")
                self._due = time.monotonic() + self._again
