"""Frames between the judge and its replay worker: a JSON message with binary blobs, over a pipe.

Layout: 8 bytes little-endian length of the header, the header (UTF-8 JSON: `{"message": ...,
"blobs": [sizes]}`), the blobs in order. Both ends are kmint's processes. The limits turn a mangled
stream into an error instead of a large allocation. Both directions have deadlines, because a
process that hangs neither reads nor answers.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

MOST_HEADER = 1 << 28
MOST_BLOBS = 1 << 30

Read = Callable[[int], bytes]
Message = dict[str, Any]


class WireError(ConnectionError):
    """The other end has closed the pipe, or sent data that is no frame."""


class WireTimeout(TimeoutError):
    """No complete frame was accepted or arrived before the deadline."""


def frame(message: Message, blobs: Sequence[bytes] = ()) -> bytes:
    """The bytes of a message and its blobs on the pipe."""
    header = json.dumps(
        {"message": message, "blobs": [len(blob) for blob in blobs]}, allow_nan=True
    ).encode()
    return b"".join((struct.pack("<Q", len(header)), header, *blobs))


def send(fd: int, framed: bytes, deadline: Callable[[], float] | None = None) -> None:
    """Writes one frame. With `deadline` (as in `deadline_reader`), `fd` becomes non-blocking.

    Raises WireError if the other end is closed, WireTimeout at the deadline.
    """
    view = memoryview(framed)
    try:
        if deadline is not None:
            os.set_blocking(fd, False)
        while view:
            try:
                view = view[os.write(fd, view) :]
            except BlockingIOError:
                assert deadline is not None
                _wait(fd, select.POLLOUT, deadline)
    except WireTimeout:
        raise
    except OSError as error:
        raise WireError(f"cannot write to the other end: {error.strerror}") from error


def receive(read: Read) -> tuple[Message, list[bytes]]:
    """Reads one frame; `read(n)` returns exactly n bytes or raises."""
    (size,) = struct.unpack("<Q", read(8))
    if size > MOST_HEADER:
        raise WireError(f"a header of {size} bytes is no frame of ours")
    try:
        header = json.loads(read(size))
        sizes = [int(size) for size in header["blobs"]]
        message = dict(header["message"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WireError(f"the header is not ours: {error}") from error
    if any(size < 0 for size in sizes) or sum(sizes) > MOST_BLOBS:
        raise WireError(f"blobs of {sum(sizes)} bytes are no frame of ours")
    return message, [read(size) for size in sizes]


def blocking_reader(fd: int) -> Read:
    """A `read` for `receive` without a time limit. Raises WireError at the end of the stream."""
    return lambda count: _read(fd, count, None)


def deadline_reader(fd: int, deadline: Callable[[], float]) -> Read:
    """A `read` that raises WireTimeout at `deadline()` (monotonic seconds), which may move."""
    return lambda count: _read(fd, count, deadline)


def _read(fd: int, count: int, deadline: Callable[[], float] | None) -> bytes:
    parts: list[bytes] = []
    while count:
        if deadline is not None:
            _wait(fd, select.POLLIN, deadline)
        try:
            part = os.read(fd, min(count, 1 << 20))
        except OSError as error:
            raise WireError(f"cannot read from the other end: {error.strerror}") from error
        if not part:
            raise WireError("the other end closed the stream")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _wait(fd: int, event: int, deadline: Callable[[], float]) -> None:
    poll = select.poll()
    poll.register(fd, event)
    left = deadline() - time.monotonic()
    while not poll.poll(max(0.0, left) * 1000):
        if left <= 0:
            raise WireTimeout("no answer in time")
        left = deadline() - time.monotonic()
