"""The system-call filter of a job, as a classic BPF program.

Refused calls fail with EPERM; calls of a foreign architecture kill the process. This filter decides
which calls exist. Landlock and the namespaces decide which objects they may touch.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

from referee.sandbox.linux import PR_SET_SECCOMP, prctl
from referee.sandbox.syscalls import (
    MACHINES,
    NEWEST,
    always,
    by_argument,
    for_devices,
    for_devices_by_argument,
    to_execute,
    unreadable,
)

_AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_MODE_FILTER = 2

_LOAD, _AND = 0x20, 0x54
_IF_EQUAL, _IF_GREATER, _IF_BITS = 0x15, 0x25, 0x45
_RETURN = 0x06
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000

_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16

_ACCESS_AND_TRUNCATE, _TRUNCATE = 0x203, 0x200
_CLONE_THREAD, _CLONE_PARENT = 0x10000, 0x8000
_CLONE_NEW_NAMESPACES = 0x7E020000

# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC, F_GETPIPE_SZ, F_GET_SEALS
_FCNTL = (0, 1, 2, 3, 4, 1030, 1032, 1034)
# FIOCLEX, FIONCLEX, FIONBIO, FIONREAD, TCGETS, TIOCGWINSZ
_IOCTL = (0x5451, 0x5450, 0x5421, 0x541B, 0x5401, 0x5413)
# The locks of files: F_GETLK, F_SETLK, F_SETLKW and F_OFD_* of the same; F_ADD_SEALS
_FCNTL_OF_DRIVERS = (5, 6, 7, 36, 37, 38, 1033)
# TIOCSTI and TIOCLINUX type into a terminal
_IOCTL_REFUSED = (0x5412, 0x541C)
_UNIX, _SOCKET_KIND, _STREAM, _PACKETS = 1, 0xF, 1, 5
# PR_GET_DUMPABLE, PR_SET_NAME, PR_GET_NAME, PR_SET_VMA
_PRCTL = (3, 15, 16, 0x53564D41)

Instruction = tuple[int, int, int, int]


def supported() -> str:
    """This machine's name if there is a filter for it. Raises OSError otherwise."""
    machine = platform.machine()
    if machine not in MACHINES:
        raise OSError(errno.ENOSYS, f"no system-call filter for {machine}")
    return machine


def build(
    machine: str, pid: int, *, execute: bool, devices: bool = False
) -> tuple[Instruction, ...]:
    """The filter for a job whose process id, in its namespace, is `pid`.

    `execute`: it may start programs. `devices`: it may use device files through a driver's library;
    Unix sockets then exist but cannot connect.
    """
    program: list[Instruction] = [
        _load(_ARCHITECTURE_AT),
        (_IF_EQUAL, 1, 0, _AUDIT_ARCHITECTURE[machine]),
        _return(_KILL),
    ]
    program.append(_load(_NUMBER_AT))
    added = [
        *(to_execute(machine).values() if execute else ()),
        *(for_devices(machine).values() if devices else ()),
    ]
    for number in (*always(machine).values(), *added):
        program += _when(number, [_return(_ALLOW)])
    for number in unreadable(machine).values():
        program += _when(number, [_return(_FAIL | errno.ENOSYS)])
    rules = _argument_rules(pid, execute) | (_device_rules() if devices else {})
    chosen = dict(by_argument(machine)) | (
        dict(for_devices_by_argument(machine)) if devices else {}
    )
    for name, number in chosen.items():
        program += _when(number, rules[name])
    program += [
        (_IF_GREATER, 0, 1, NEWEST),
        _return(_FAIL | errno.ENOSYS),
        _return(_FAIL | errno.EPERM),
    ]
    return tuple(program)


def install(*, execute: bool, devices: bool = False) -> int:
    """Applies the filter, which needs no_new_privs. Returns its length. Raises OSError."""
    program = build(supported(), os.getpid(), execute=execute, devices=devices)
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(buffer)))
    prctl(PR_SET_SECCOMP, _MODE_FILTER, header)
    return len(program)


def _argument_rules(pid: int, execute: bool) -> dict[str, list[Instruction]]:
    return {
        "open": _opening(1),
        "openat": _opening(2),
        "fcntl": _one_of(1, _FCNTL, errno.EPERM),
        "ioctl": _one_of(1, _IOCTL, errno.ENOTTY),
        "prctl": _one_of(0, _PRCTL, errno.EPERM),
        # A null pointer for the new limits only reads them.
        "prlimit64": _is_null(2),
        "clone": _cloning(execute),
        "kill": _one_of(0, (pid,), errno.EPERM),
        "tgkill": _one_of(0, (pid,), errno.EPERM),
    }


def _device_rules() -> dict[str, list[Instruction]]:
    """The differences for a driver's library: commands to devices, and local sockets."""
    allow, refuse = _return(_ALLOW), _return(_FAIL | errno.EPERM)
    socket = [
        _low(0),
        (_IF_EQUAL, 1, 0, _UNIX),
        _return(_FAIL | errno.EAFNOSUPPORT),
        _low(1),
        (_AND, 0, 0, _SOCKET_KIND),
    ]
    # A packet to an address needs no `connect`, so only connected kinds exist.
    for kind in (_STREAM, _PACKETS):
        socket += [(_IF_EQUAL, 0, 1, kind), allow]
    command = [_low(1)]
    for value in _IOCTL_REFUSED:
        command += [(_IF_EQUAL, 0, 1, value), refuse]
    return {
        "fcntl": _one_of(1, _FCNTL + _FCNTL_OF_DRIVERS, errno.EPERM),
        "ioctl": [*command, allow],
        "socket": [*socket, refuse],
        "socketpair": [*socket, refuse],
        # The error of a socket without a listener.
        "connect": [_return(_FAIL | errno.ECONNREFUSED)],
        # A message is allowed only without an address.
        "sendto": _is_null(4),
    }


def _load(offset: int) -> Instruction:
    return (_LOAD, 0, 0, offset)


def _low(argument: int) -> Instruction:
    return _load(_ARGUMENTS_AT + 8 * argument)


def _high(argument: int) -> Instruction:
    return _load(_ARGUMENTS_AT + 8 * argument + 4)


def _return(action: int) -> Instruction:
    return (_RETURN, 0, 0, action)


def _when(number: int, body: list[Instruction]) -> list[Instruction]:
    return [(_IF_EQUAL, 0, len(body), number), *body]


def _one_of(argument: int, values: tuple[int, ...], otherwise: int) -> list[Instruction]:
    body = [_low(argument)]
    for value in values:
        body += [(_IF_EQUAL, 0, 1, value), _return(_ALLOW)]
    return [*body, _return(_FAIL | otherwise)]


def _opening(argument: int) -> list[Instruction]:
    # Truncating a read-only file escapes Landlock's older versions; POSIX leaves it undefined.
    body = [_low(argument), (_AND, 0, 0, _ACCESS_AND_TRUNCATE)]
    for mode in (_TRUNCATE, _ACCESS_AND_TRUNCATE):
        body += [(_IF_EQUAL, 0, 1, mode), _return(_FAIL | errno.EPERM)]
    return [*body, _return(_ALLOW)]


def _is_null(argument: int) -> list[Instruction]:
    failure = _return(_FAIL | errno.EPERM)
    return [
        _low(argument),
        (_IF_EQUAL, 1, 0, 0),
        failure,
        _high(argument),
        (_IF_EQUAL, 1, 0, 0),
        failure,
        _return(_ALLOW),
    ]


def _cloning(execute: bool) -> list[Instruction]:
    failure = _return(_FAIL | errno.EPERM)
    body = [_low(0), (_IF_BITS, 0, 1, _CLONE_NEW_NAMESPACES | _CLONE_PARENT), failure]
    if not execute:
        body += [(_IF_BITS, 1, 0, _CLONE_THREAD), failure]
    return [*body, _return(_ALLOW)]
