"""Landlock: the files that a job may read, write and execute, enforced by the kernel without
privileges.

Uses the kernel's user interface `linux/landlock.h`, versions 1 to 7 and later; `describe` names the
gaps of older versions. Landlock does not hide names, sizes and times of files. The system-call
filter handles file modes.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from referee.sandbox.linux import syscall

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG, _MAKE_SYM = 1 << 4, 1 << 5, 1 << 7, 1 << 8, 1 << 12
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15

READ = READ_FILE | READ_DIR
DEVICE = READ | WRITE_FILE | _IOCTL_DEV
WRITE = (
    READ
    | WRITE_FILE
    | _REMOVE_DIR
    | _REMOVE_FILE
    | _MAKE_DIR
    | _MAKE_REG
    | _MAKE_SYM
    | _REFER
    | _TRUNCATE
)

_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEV
_ALL_TCP = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11


@dataclass(frozen=True)
class Rule:
    """Rights on a file, or on a directory and everything below it."""

    path: str
    rights: int


def version() -> int:
    """The kernel's Landlock version. Raises OSError if it has none."""
    return syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)


def is_there() -> bool:
    """Whether the kernel has Landlock and lets this process use it."""
    try:
        return version() > 0
    except OSError:
        return False


def describe(landlock_version: int) -> str:
    """The protection of this version, in words."""
    parts = ["files"]
    if landlock_version >= 3:
        parts.append("truncation")
    if landlock_version >= 4:
        parts.append("TCP")
    if landlock_version >= 5:
        parts.append("device ioctls")
    if landlock_version >= 6:
        parts.append("signals and abstract sockets")
    return f"version {landlock_version}: {', '.join(parts)}"


def restrict(rules: Iterable[Rule]) -> int:
    """Limits this process to the rules permanently; needs no_new_privs. Returns the version. Raises
    OSError.

    Missing paths are left out.
    """
    supported = version()
    handled = _handled(supported)
    attributes = struct.pack(
        "=QQQ",
        handled,
        _ALL_TCP if supported >= 4 else 0,
        _ABSTRACT_SOCKETS_AND_SIGNALS if supported >= 6 else 0,
    )
    size = 8 if supported < 4 else 16 if supported < 6 else 24
    ruleset = syscall(_CREATE_RULESET, ctypes.c_char_p(attributes[:size]), size, 0)
    try:
        for rule in rules:
            _add(ruleset, rule, handled)
        syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return supported


def _handled(supported: int) -> int:
    rights = (1 << 13) - 1
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        if supported >= since:
            rights |= right
    return rights


def _add(ruleset: int, rule: Rule, handled: int) -> None:
    try:
        fd = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        rights = rule.rights & handled
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _FILE_RIGHTS
        if rights:
            syscall(
                _ADD_RULE,
                ruleset,
                _RULE_PATH_BENEATH,
                ctypes.c_char_p(struct.pack("=Qi", rights, fd)),
                0,
            )
    finally:
        os.close(fd)
