"""The standard streams: all three open, able to hold any text, and robust against a lost reader."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from typing import IO


def prepare() -> None:
    """Give a closed standard stream (`>&-`) the null device, so that no file of ours gets its
    number and is written over.

    Text that the terminal's encoding lacks, and bytes of file names that are no text, are written
    escaped.
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
    """Send the output of a user's function or a library to stderr: stdout is for data."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def drop(stream: IO[str]) -> None:
    """Send further output on `stream` to the null device, after its reader or disk has gone."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
