"""Namespaces: the users, processes, network and mounts of the host that the fork server and its
jobs see.

The server enters its namespaces once, before it imports anything; every job gets further ones. A
kind that the host refuses is left out and reported. A child tries each kind first, because an
incomplete namespace could not be left again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from referee.sandbox.demand import Protection
from referee.sandbox.linux import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    MS_PRIVATE,
    MS_REC,
    mount,
    setns,
    unshare,
)

# The id of the user without rights, which owns nothing.
NOBODY = 65534

# The user namespace comes first, because it gives the rights for the others. The pid namespace
# comes last, because the next fork enters it.
_KINDS = (
    ("user namespace", CLONE_NEWUSER, "no rights over anything outside"),
    ("mount namespace", CLONE_NEWNS, "own mounts"),
    ("network namespace", CLONE_NEWNET, "no network interface"),
    ("ipc namespace", CLONE_NEWIPC, "no System V or POSIX message objects of the host"),
    ("uts namespace", CLONE_NEWUTS, "own host name"),
    (
        "pid namespace",
        CLONE_NEWPID,
        "no other process can be named; a job ends with everything it started",
    ),
)


@dataclass(frozen=True)
class Namespaces:
    """The separate namespaces of this process (CLONE_NEW* flags), and a report on each kind."""

    flags: int
    protections: tuple[Protection, ...]

    def has(self, flag: int) -> bool:
        """Whether the kind is active."""
        return bool(self.flags & flag)


def enter(without: Collection[str] = ()) -> Namespaces:
    """Enters every namespace that this host allows, except those named.

    The pid namespace begins with the next fork. Call it before any thread exists.
    """
    flags = 0
    protections = []
    for name, flag, detail in _KINDS:
        reason = "left out on request" if name in without else _enter_one(flag)
        if not reason:
            flags |= flag
        protections.append(Protection(name, not reason, reason or detail))
    return Namespaces(flags, tuple(protections))


def nest(own_process: int) -> None:
    """Enters a further user and IPC namespace; `own_process` is an open directory in /proc."""
    uid, gid = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER | CLONE_NEWIPC)
    _write(own_process, "setgroups", "deny")
    _write(own_process, "gid_map", f"{gid} {gid} 1")
    _write(own_process, "uid_map", f"{uid} {uid} 1")


def fork_into_pid_namespace(home: int) -> int:
    """As os.fork, into a new pid namespace. `home` is /proc/self/ns/pid, opened."""
    unshare(CLONE_NEWPID)
    try:
        pid = os.fork()
    except OSError:
        setns(home, CLONE_NEWPID)
        raise
    if pid != 0:
        setns(home, CLONE_NEWPID)
    return pid


def try_in_child(function: Callable[[], None]) -> str:
    """Why `function` fails with an OSError here, or "". It changes only a child process."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        reason = "the trial process died"
        try:
            function()
            reason = ""
        except OSError as error:
            reason = str(error)
        finally:
            os.write(write, reason.encode())
            os._exit(0)
    os.close(write)
    with open(read, "rb") as answer:
        reason = answer.read().decode()
    _, ended = os.waitpid(pid, 0)
    # A killed child has reported nothing, which is no success.
    return reason or ("the trial process died" if ended else "")


def _enter_one(flag: int) -> str:
    ways: list[Callable[[], None]] = [partial(_unshare, flag)]
    if flag == CLONE_NEWUSER:
        ways = [_unshare_user_as_self]
        if os.geteuid() == 0:
            ways.insert(0, _unshare_user_with_nobody)
    reason = ""
    for way in ways:
        reason = try_in_child(way)
        if not reason:
            way()
            break
    return reason


def _unshare(flag: int) -> None:
    unshare(flag)
    if flag == CLONE_NEWNS:
        mount("none", "/", None, MS_PRIVATE | MS_REC)


def _unshare_user_as_self() -> None:
    # The ids are equal inside and outside, so files keep their owner.
    uid, gid = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER)
    process = _open_process(os.getpid())
    _write(process, "setgroups", "deny")
    _write(process, "gid_map", f"{gid} {gid} 1")
    _write(process, "uid_map", f"{uid} {uid} 1")
    os.close(process)


def _unshare_user_with_nobody() -> None:
    """For root: a map, written by an outside process, with the id 65534 for jobs."""
    process = _open_process(os.getpid())
    go_read, go_write = os.pipe()
    helper = os.fork()
    if helper == 0:
        status = 1
        try:
            os.close(go_write)
            os.read(go_read, 1)
            for name in ("gid_map", "uid_map"):
                _write(process, name, f"0 0 1\n{NOBODY} {NOBODY} 1")
            status = 0
        finally:
            os._exit(status)
    os.close(go_read)
    try:
        unshare(CLONE_NEWUSER)
    finally:
        os.close(go_write)
        os.close(process)
        _, ended = os.waitpid(helper, 0)
    if ended != 0:
        raise PermissionError("the user map cannot hold a second id")


def _open_process(pid: int) -> int:
    return os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _write(process: int, name: str, text: str) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=process)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
