"""Keeps what a process has loaded in huge pages, so that it forks in less time: a fork copies one entry for each page.

Linux does so by itself only where it is told to, and slowly; from 6.1 on a process may ask for it (MADV_COLLAPSE). It is done bit by bit,
because each bit takes milliseconds. Limits: a page that is written while a child shares it is in small ones again; where Linux
refuses, everything stays as it is.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

from referee.sandbox.linux import call

_HUGE = 2 << 20
_MADV_COLLAPSE = 25


class HugePages:
    """Of the process that makes it, which must still see /proc."""

    def __init__(self) -> None:
        self._pending: list[int] = []
        try:
            self._maps = os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._maps = -1

    @property
    def pending(self) -> bool:
        """Whether there is something left to do."""
        return bool(self._pending)

    def again(self) -> None:
        """There is more memory than before."""
        self._pending = list(self._addresses())

    def step(self) -> None:
        """Do the next bit."""
        try:
            call("madvise", ctypes.c_void_p(self._pending.pop()), ctypes.c_size_t(_HUGE), _MADV_COLLAPSE)
        except OSError:
            # Not of this kernel, or not of this memory: the next may do.
            return

    def _addresses(self) -> Iterator[int]:
        """Where a huge page fits into the memory that this process alone has filled."""
        if self._maps == -1:
            return
        with open(os.dup(self._maps), encoding="utf-8") as maps:
            maps.seek(0)
            lines = maps.read().splitlines()
        for line in lines:
            span, rights, _, _, _, *name = line.split(maxsplit=5)
            start, end = (int(part, 16) for part in span.split("-"))
            if rights == "rw-p" and name in ([], ["[heap]"]):
                first = -(-start // _HUGE) * _HUGE
                yield from range(first, end - _HUGE + 1, _HUGE)
