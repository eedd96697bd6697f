"""Torch without threads of its own, for small operations beside other work.

Torch shares an operation of more than some ten thousand elements among as many threads as there are processors, which then spin for
a while: where several of its callers and many other processes are at work, that takes longer than the operation. Limit: torch keeps
the number for each thread, but a thread that first uses torch while this is in force begins with one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside: list[int] = []  # of how many threads each of those that are inside disposes outside


@contextmanager
def one_thread() -> Iterator[None]:
    """Within, torch computes in the calling thread alone."""
    import torch

    with _lock:
        own = torch.get_num_threads()
        # A thread that came into being while another one was inside.
        before = own if own > 1 else max(_inside, default=own)
        _inside.append(before)
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            _inside.remove(before)
            torch.set_num_threads(before)
