"""The threads of one verdict: cancel tokens, task scopes, shared values, and torch in one thread.

Torch splits operations over about ten thousand elements between all processors, and its threads
then spin. With several callers and many processes, that takes longer than the operation itself.

Limits: the number of torch's threads is kept for each thread. A thread that first uses torch inside
`single_torch_thread` begins with one. `split_by_cost` never splits an item.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate
from threading import Lock
from typing import Any, Self, TypeVar


class CancelToken:
    """A flag with a file descriptor, so that `select` and `poll` can wait for it.

    The descriptor becomes readable when the token is cancelled, and stays so. As a context manager
    the token closes its descriptor at the end.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def fileno(self) -> int:
        """The file descriptor to wait for. Raises OSError after `close`."""
        if self._fd < 0:
            raise OSError("the cancel token is closed")
        return self._fd

    def cancel(self) -> None:
        """Make the descriptor readable. Raises OSError after `close`."""
        os.eventfd_write(self.fileno(), 1)

    def close(self) -> None:
        """Close the descriptor. May be called more than once."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


T = TypeVar("T")


class TaskScope:
    """A context manager that runs tasks in threads and ends them when the block ends.

    At the end, tasks that did not start are dropped, and `cancel` is set for the running ones. The
    scope waits for these. Exceptions of futures whose result is never requested are dropped.
    """

    def __init__(self, name: str, threads: int = 1, *, one_torch_thread: bool = False) -> None:
        """`name` is the prefix of the thread names; `threads` is the number of threads.

        With `one_torch_thread`, each task runs torch as `single_torch_thread` does.
        """
        self._one_torch_thread = one_torch_thread
        self.cancel = CancelToken()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._futures: list[Future[Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        # The queue is emptied first, because a thread whose task is cancelled takes the next one.
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.cancel.cancel()
        self._pool.shutdown()
        for future in self._futures:
            if future.cancelled():
                # Without this, `concurrent.futures.wait` on several futures would block forever.
                future.set_running_or_notify_cancel()
        self.cancel.close()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` in a thread after the tasks submitted earlier. Returns its future."""
        future = (
            self._pool.submit(_alone, work) if self._one_torch_thread else self._pool.submit(work)
        )
        self._futures.append(future)
        return future


class Memo:
    """Values by key. The first thread that needs a key computes its value."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._locks: dict[Hashable, Lock] = {}
        self._found: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of `key`, computed by `make` if it is missing.

        An exception of `make` is raised, and nothing is stored.
        """
        with self._guard:
            lock = self._locks.setdefault(key, Lock())
        with lock:
            if key not in self._found:
                self._found[key] = make()
            value: T = self._found[key]
            return value

    def __len__(self) -> int:
        return len(self._found)


def split_by_cost(efforts: Sequence[float], items: Sequence[T], most: int) -> list[Sequence[T]]:
    """At most `most` parts of `items`. `efforts` has one positive cost for each item."""
    found: dict[int, list[int]] = {}
    total = sum(efforts)
    for number, (effort, end) in enumerate(zip(efforts, accumulate(efforts), strict=True)):
        found.setdefault(int(most * (end - effort / 2) / total), []).append(number)
    return [items[numbers[0] : numbers[-1] + 1] for numbers in found.values()]


_lock = threading.Lock()
_inside: list[int] = []  # Thread counts outside the block, one for each thread inside.


@contextmanager
def single_torch_thread() -> Iterator[None]:
    """Within the block, torch computes in the calling thread alone."""
    import torch

    with _lock:
        own = torch.get_num_threads()
        # A thread that started inside another thread's block sees 1, so its own count is unknown.
        before = own if own > 1 else max(_inside, default=own)
        _inside.append(before)
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            _inside.remove(before)
            torch.set_num_threads(before)


def _alone(work: Callable[[], T]) -> T:
    with single_torch_thread():
        return work()
