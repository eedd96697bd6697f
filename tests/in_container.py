"""Runs a command as a container without rights does: nothing that it starts can make a namespace or
mount anything.

    python tests/in_container.py [--without-landlock] COMMAND ...

A seccomp filter of the kernel's, as Docker's and Kubernetes' default ones. Ends with 99 where there
is no such filter.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

UNSUPPORTED = 99
_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _IF_EQUAL, _IF_BITS, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _EPERM, _ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026
_NUMBER, _FIRST_ARGUMENT = 0, 16
_NEW_NAMESPACES = 0x7E020000
# unshare, setns, mount, umount2, pivot_root
_REFUSED = {"x86_64": (272, 308, 165, 166, 155), "aarch64": (97, 268, 40, 39, 41)}
_CLONE = {"x86_64": 56, "aarch64": 220}
# open_tree, move_mount, fsopen, mount_setattr
_NEW_MOUNTS = (428, 429, 430, 442)
_CLONE3 = 435
_LANDLOCK = (444, 445, 446)


def restrict(*, landlock: bool) -> None:
    """Put this process and its children under the filter. Raises OSError, and KeyError on another
    kind of machine.
    """
    machine = platform.machine()
    program: list[tuple[int, int, int, int]] = [(_LOAD, 0, 0, _NUMBER)]
    for number in (*_REFUSED[machine], *_NEW_MOUNTS):
        program += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _EPERM)]
    for number in (_CLONE3, *(() if landlock else _LANDLOCK)):
        program += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ENOSYS)]
    namespaces = [
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_IF_BITS, 0, 1, _NEW_NAMESPACES),
        (_RETURN, 0, 0, _EPERM),
    ]
    program += [
        (_IF_EQUAL, 0, len(namespaces), _CLONE[machine]),
        *namespaces,
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) or prctl(_SET_SECCOMP, _FILTER, header, 0, 0):
        raise OSError(ctypes.get_errno(), "no system-call filter here")


if __name__ == "__main__":
    command = sys.argv[1:]
    without = command[:1] == ["--without-landlock"]
    try:
        restrict(landlock=not without)
    except (OSError, KeyError):
        sys.exit(UNSUPPORTED)
    command = command[without:]
    os.execvp(command[0], command)
