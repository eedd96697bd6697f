"""Runs a command and kills it, with all its processes, once it opens a socket other than a Unix
one.

    python tests/models/no_sockets.py COMMAND ...

A seccomp filter of the kernel enforces it on native code as well. Setting up io_uring, another way
to a socket, counts as opening one. Exits with 99 where such a filter is missing.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
import sys

UNIX = 1
_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _KILL_PROCESS = 0x7FFF0000, 0x80000000
_NUMBER, _FIRST_ARGUMENT = 0, 16
_SOCKET = {"x86_64": 41, "aarch64": 198}
_IO_URING_SETUP = 425
UNSUPPORTED = 99


def forbid() -> None:
    """Put this process and its children under the filter; a killed process leaves no core file.

    Raises OSError, and KeyError on another kind of machine.
    """
    program = [
        (_LOAD, 0, 0, _NUMBER),
        (_IF_EQUAL, 3, 0, _IO_URING_SETUP),
        (_IF_EQUAL, 0, 3, _SOCKET[platform.machine()]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_IF_EQUAL, 1, 0, UNIX),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) or prctl(_SET_SECCOMP, _FILTER, header, 0, 0):
        raise OSError(ctypes.get_errno(), "no system-call filter here")
    # A limit of 1 byte, unlike 0, also keeps the kernel from piping the memory to a collector.
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(
        resource.RLIMIT_CORE, (min(1, most) if most != resource.RLIM_INFINITY else 1, most)
    )


if __name__ == "__main__":
    try:
        forbid()
    except (OSError, KeyError):
        sys.exit(UNSUPPORTED)
    os.execvp(sys.argv[1], sys.argv[1:])
