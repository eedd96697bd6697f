"""SIGTERM and SIGHUP end a command like Ctrl-C: children end and unfinished files go first."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

# Python's own exit code when the last output cannot be written.
_UNWRITTEN = 120


class Terminated(BaseException):
    """A signal asked the process to end; `number` is the signal's.

    Like KeyboardInterrupt it is no Exception, so no handler of errors catches it.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def orderly() -> Iterator[None]:
    """Within it a signal raises Terminated in the main thread. A second one ends the process at
    once, as it always did.

    A signal that is ignored (`nohup`) stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        for number in _SIGNALS:
            if before[number] == signal.SIG_DFL:
                signal.signal(number, _terminate)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def two_step_interrupt(stop: Callable[[], object]) -> Iterator[list[int]]:
    """Within it the first Ctrl-C calls `stop`, and the second interrupts everything.

    Yields the list of interrupts so far.
    """
    seen: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        if len(seen) > 1:
            raise KeyboardInterrupt
        stop()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise Terminated(number)


def leave(code: int) -> NoReturn:
    """End the process with `code`.

    Daemon threads may still run, such as judges after Ctrl-C. Python's shutdown kills these
    threads, and torch's C++ code then aborts the whole process. With daemon threads left, this
    function does the steps of the shutdown itself and skips the killing.
    """
    if not any(thread.daemon for thread in threading.enumerate()):
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]  # As multiprocessing ends its children: wait for the other threads.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            code = _UNWRITTEN
    os._exit(code)
