"""Linux calls that the sandbox needs and Python lacks, through libc, and the layers that are one such
call. Each raises OSError on failure.
"""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache
from typing import Any

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47

_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_SYS_MOUNT_SETATTR = 442
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_CAPABILITIES = 64
# NOROOT, NO_SETUID_FIXUP, NO_CAP_AMBIENT_RAISE and KEEP_CAPS off, each with its lock.
_SECUREBITS = 0b1110_1111


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Any) -> int:
    """Calls a libc function that returns -1 on failure."""
    try:
        function = getattr(_libc(), name)
    except AttributeError:
        raise OSError(errno.ENOSYS, f"libc has no {name}") from None
    ctypes.set_errno(0)
    result = int(function(*arguments))
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def syscall(number: int, *arguments: Any) -> int:
    """Makes a system call by number. Integers are passed as 64 bits."""
    return call(
        "syscall",
        ctypes.c_long(number),
        *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments),
    )


def prctl(option: int, *arguments: Any) -> int:
    """The call prctl(2); missing arguments are zero."""
    padded = (*arguments, 0, 0, 0, 0)[:4]
    return call("prctl", option, *(ctypes.c_ulong(a) if isinstance(a, int) else a for a in padded))


def unshare(flags: int) -> None:
    """The call unshare(2); `os.unshare` needs Python 3.12."""
    call("unshare", flags)


def setns(fd: int, kind: int) -> None:
    """The call setns(2); `os.setns` needs Python 3.12."""
    call("setns", fd, kind)


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """The call mount(2)."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    call("mount", encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])


def unmount(target: str) -> None:
    """Detaches a mount and everything below it."""
    call("umount2", os.fsencode(target), MNT_DETACH)


def pivot_root(new: str, old: str) -> None:
    """The call pivot_root(2)."""
    call("pivot_root", os.fsencode(new), os.fsencode(old))


def set_mount_flags(target: str, flags: int) -> None:
    """Adds flags (MS_RDONLY and so on, equal to MOUNT_ATTR_*) to a tree of mounts."""
    attributes = (ctypes.c_uint64 * 4)(flags, 0, 0, 0)
    syscall(
        _SYS_MOUNT_SETATTR,
        _AT_FDCWD,
        ctypes.c_char_p(os.fsencode(target)),
        _AT_RECURSIVE,
        attributes,
        ctypes.sizeof(attributes),
    )


def drop_capabilities() -> None:
    """Gives up every capability permanently, also across execve and for uid 0."""
    for capability in range(_CAPABILITIES):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno != errno.EINVAL and error.errno != errno.EPERM:
                raise
    try:
        prctl(PR_SET_SECUREBITS, _SECUREBITS)
    except OSError as error:
        # Only a process that may set capabilities may lock them; another one has none to lose.
        if error.errno != errno.EPERM:
            raise
    prctl(PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    call("capset", header, (ctypes.c_uint32 * 6)())


def no_capabilities() -> str:
    """Gives up every capability permanently."""
    drop_capabilities()
    return "none, and none to regain"


def no_new_privileges() -> str:
    """Sets no_new_privs, which Landlock and the system-call filter need too."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    return "programs gain nothing from set-user-id"


def not_dumpable() -> str:
    """Closes the process's memory to other processes of its user."""
    prctl(PR_SET_DUMPABLE, 0)
    return "no core files, no reading by processes of the same user"
