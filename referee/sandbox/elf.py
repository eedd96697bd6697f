"""The one fact about a program file that the sandbox needs: which dynamic loader the kernel will execute for it."""

from __future__ import annotations

import os
import struct

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_INTERPRETER_SEGMENT = 3


def interpreter(program: str) -> str | None:
    """Path of the loader named in a 64-bit little-endian ELF file; None for other files and static programs."""
    with open(program, "rb") as file:
        start = file.read(_HEADER.size)
        if len(start) < _HEADER.size or start[:6] != b"\x7fELF\x02\x01":
            return None
        fields = _HEADER.unpack(start)
        offset, entry_size, entries = fields[4], fields[8], fields[9]
        for index in range(entries):
            file.seek(offset + index * entry_size)
            kind, _, begin, _, _, size, _, _ = _PROGRAM_HEADER.unpack(file.read(_PROGRAM_HEADER.size))
            if kind == _INTERPRETER_SEGMENT:
                file.seek(begin)
                return os.fsdecode(file.read(size).rstrip(b"\0"))
    return None
