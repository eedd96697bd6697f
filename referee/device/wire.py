"""Frames between the judge and its replay worker: a JSON message with binary blobs behind it, over a pipe.

Layout: 8 bytes little-endian length of the header, the header (UTF-8 JSON: `{"message": ..., "blobs": [sizes]}`), the
blobs in order. Both ends are our own processes; limits exist so that a mangled stream ends in an error and not in an
allocation. Towards the worker and from it there are deadlines: a process that hangs neither reads nor answers.
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
    """The other end is gone, or what it sent is not a frame."""


class WireTimeout(TimeoutError):
    """No complete frame was taken or arrived before the deadline."""


def frame(message: Message, blobs: Sequence[bytes] = ()) -> bytes:
    """A message and its blobs, as they cross the pipe."""
    header = json.dumps({"message": message, "blobs": [len(blob) for blob in blobs]}, allow_nan=True).encode()
    return b"".join((struct.pack("<Q", len(header)), header, *blobs))


def send(fd: int, framed: bytes, deadline: Callable[[], float] | None = None) -> None:
    """Write one frame; raises WireError when the other end is closed, WireTimeout at `deadline()` (time.monotonic seconds).

    With a deadline, `fd` is non-blocking from then on.
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
    """Read one frame; `read(n)` returns exactly n bytes or raises."""
    (size,) = struct.unpack("<Q", read(8))
    if size > MOST_HEADER:
        raise WireError(f"a header of {size} bytes is no frame of ours")
    try:
        header = json.loads(read(size))
        sizes = [int(size) for size in header["blobs"]]
        message = dict(header["message"])
    except (ValueError, KeyError, TypeError) as error:
        raise WireError(f"the header is not ours: {error}") from error
    if any(size < 0 for size in sizes) or sum(sizes) > MOST_BLOBS:
        raise WireError(f"blobs of {sum(sizes)} bytes are no frame of ours")
    return message, [read(size) for size in sizes]


def blocking_reader(fd: int) -> Read:
    """A `read` for `receive` that waits as long as it takes; raises WireError at the end of the stream."""
    return lambda count: _read(fd, count, None)


def deadline_reader(fd: int, deadline: Callable[[], float]) -> Read:
    """A `read` that raises WireTimeout at `deadline()` (time.monotonic seconds), which may move while it waits."""
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
    left = deadline() - time.monotonic()
    poll = select.poll()
    poll.register(fd, event)
    if left <= 0 or not poll.poll(left * 1000):
        raise WireTimeout("no answer in time")
