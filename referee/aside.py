"""Threads for what a judgement has done beside its main line, which stop when that ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Aside:
    """A context manager: at its end what has not begun never does, and what watches `stop`, a file descriptor, ends.

    Something can be read from `stop` then. Nobody learns of an error in what nobody asks for.
    """

    def __init__(self, name: str, threads: int = 1) -> None:
        self.stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._given: list[Future[Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # Before what runs is told to end: or a thread that does takes up the next.
        self._pool.shutdown(wait=False, cancel_futures=True)
        os.eventfd_write(self.stop, 1)
        self._pool.shutdown()
        for future in self._given:
            if future.cancelled():
                # Or who waits for one of several by `concurrent.futures.wait` does so for ever.
                future.set_running_or_notify_cancel()
        os.close(self.stop)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Do this as soon as a thread is free of what was submitted before."""
        future = self._pool.submit(work)
        self._given.append(future)
        return future
