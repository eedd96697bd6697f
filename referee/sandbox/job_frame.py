"""The frame of a job's result: magic, status byte, length, bytes.

The child writes it and could write anything, so the parent reads it as data, within bounds.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

FrameStatus = Literal["ok", "crash", "memory"]

_MAGIC = b"KMJ1"
_HEADER = struct.Struct("<4sBQ")
_STATUSES: tuple[FrameStatus, ...] = ("ok", "crash", "memory")
HEADER_BYTES = _HEADER.size

# Maximum bytes of an explanation in a frame that is not "ok".
DETAIL_BYTES = 4000


@dataclass(frozen=True)
class Header:
    """Status of a result and the number of bytes that follow."""

    status: FrameStatus
    size: int


def build(status: FrameStatus, data: bytes) -> bytes:
    """One whole frame."""
    return _HEADER.pack(_MAGIC, _STATUSES.index(status), len(data)) + data


def parse_header(received: bytes | bytearray) -> Header | None:
    """The header at the start of `received`; None if it is incomplete or foreign."""
    if len(received) < HEADER_BYTES:
        return None
    magic, status, size = _HEADER.unpack_from(received)
    if magic != _MAGIC or status >= len(_STATUSES):
        return None
    return Header(_STATUSES[status], size)
