"""The system-call filter of a job, as a classic BPF program.

Refused calls fail with EPERM; calls of a foreign architecture kill the process. What the calls may touch is decided by
Landlock and the namespaces; this filter decides which calls there are at all.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

from referee.sandbox.linux import PR_SET_SECCOMP, prctl
from referee.sandbox.syscalls import MACHINES, NEWEST, always, by_argument, to_execute, unreadable

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
# PR_GET_DUMPABLE, PR_SET_NAME, PR_GET_NAME, PR_SET_VMA
_PRCTL = (3, 15, 16, 0x53564D41)

Instruction = tuple[int, int, int, int]


def supported() -> str:
    """This machine's name if there is a filter for it. Raises OSError where there is none."""
    machine = platform.machine()
    if machine not in MACHINES:
        raise OSError(errno.ENOSYS, f"no system-call filter for {machine}")
    return machine


def build(machine: str, pid: int, *, execute: bool) -> tuple[Instruction, ...]:
    """The filter for a job whose process id, as it sees itself, is `pid`. `execute`: it may start programs."""
    program: list[Instruction] = [_load(_ARCHITECTURE_AT), (_IF_EQUAL, 1, 0, _AUDIT_ARCHITECTURE[machine]), _return(_KILL)]
    program.append(_load(_NUMBER_AT))
    for number in (*always(machine).values(), *(to_execute(machine).values() if execute else ())):
        program += _when(number, [_return(_ALLOW)])
    for number in unreadable(machine).values():
        program += _when(number, [_return(_FAIL | errno.ENOSYS)])
    rules = _argument_rules(pid, execute)
    for name, number in by_argument(machine).items():
        program += _when(number, rules[name])
    program += [(_IF_GREATER, 0, 1, NEWEST), _return(_FAIL | errno.ENOSYS), _return(_FAIL | errno.EPERM)]
    return tuple(program)


def install(*, execute: bool) -> int:
    """Put this process under the filter; it needs no_new_privs. Returns the filter's length. Raises OSError."""
    program = build(supported(), os.getpid(), execute=execute)
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
        "prlimit64": _reading_limits(),
        "clone": _cloning(execute),
        "kill": _one_of(0, (pid,), errno.EPERM),
        "tgkill": _one_of(0, (pid,), errno.EPERM),
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
    # Truncating a file that is opened for reading only escapes Landlock's older versions; POSIX leaves it undefined.
    body = [_low(argument), (_AND, 0, 0, _ACCESS_AND_TRUNCATE)]
    for mode in (_TRUNCATE, _ACCESS_AND_TRUNCATE):
        body += [(_IF_EQUAL, 0, 1, mode), _return(_FAIL | errno.EPERM)]
    return [*body, _return(_ALLOW)]


def _reading_limits() -> list[Instruction]:
    failure = _return(_FAIL | errno.EPERM)
    return [_low(2), (_IF_EQUAL, 1, 0, 0), failure, _high(2), (_IF_EQUAL, 1, 0, 0), failure, _return(_ALLOW)]


def _cloning(execute: bool) -> list[Instruction]:
    failure = _return(_FAIL | errno.EPERM)
    body = [_low(0), (_IF_BITS, 0, 1, _CLONE_NEW_NAMESPACES | _CLONE_PARENT), failure]
    if not execute:
        body += [(_IF_BITS, 1, 0, _CLONE_THREAD), failure]
    return [*body, _return(_ALLOW)]
