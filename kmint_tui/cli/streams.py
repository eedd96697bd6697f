"""The standard streams as a command needs them: all three open, able to hold any text, and no fault when their reader goes away."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from typing import IO


def prepare() -> None:
    """Give a closed standard stream (`>&-`) the null device, so that no file of ours gets its number and is written over.

    Text that the terminal's encoding lacks, and bytes of file names that are no text, are written escaped.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    sys.stdin = sys.stdin or open(0, closefd=False, encoding="utf-8")
    sys.stdout = sys.stdout or open(1, "w", closefd=False, encoding="utf-8")
    sys.stderr = sys.stderr or open(2, "w", closefd=False, encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def data_only() -> Iterator[None]:
    """What a user's own reference or a library prints meanwhile goes to stderr: stdout is for data."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def drop(stream: IO[str]) -> None:
    """Send what is still to come on `stream`, whose reader or disk has gone, to the null device."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
