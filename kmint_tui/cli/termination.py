"""SIGTERM and SIGHUP end a command the way Ctrl-C does: children are ended and unfinished files are taken away first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(BaseException):
    """The process was told to end; `number` is the signal's. Like KeyboardInterrupt no error, so that nothing takes it for one."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def orderly() -> Iterator[None]:
    """Within it a signal raises Terminated in the main thread. A second one ends the process at once, as it always did.

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


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise Terminated(number)
