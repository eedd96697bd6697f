"""What the sandbox tests share: the worlds they run in, how an attack is made, and how processes
are watched.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from referee.sandbox.zygote import Limits, Outcome, Zygote

HOSTILE = Path(__file__).parent / "hostile"
# Far more time than any job here takes, however slow the machine: only a job that hangs meets the
# limit.
LIMITS = Limits(seconds=240.0, memory_bytes=512 << 20, output_bytes=1 << 16)
NAMESPACES = (
    "user namespace",
    "mount namespace",
    "network namespace",
    "ipc namespace",
    "uts namespace",
    "pid namespace",
)

# Each world must hold alone: everything; what is left in a container that allows no namespaces;
# namespaces alone.
WORLDS: dict[str, Collection[str]] = {
    "full": (),
    "container": (*NAMESPACES, "private root"),
    "namespaces only": ("landlock", "system-call filter"),
}
SECRET = "KMINT_TEST_SECRET"


def make(without: Collection[str] = ()) -> Zygote:
    """A fork server that starts quickly and finds the hostile entries."""
    return Zygote(preload=(), extra_path=(str(HOSTILE),), without=without, demand="any")


class Attack:
    """Runs a hostile entry in one world, then checks that the next job and the server are
    unaffected.
    """

    def __init__(self, servers: dict[str, Zygote]) -> None:
        self._servers = servers

    def __call__(
        self,
        entry: str,
        payload: str | bytes = b"",
        *,
        world: str = "full",
        limits: Limits = LIMITS,
        fds: Sequence[int] = (),
    ) -> Outcome:
        zygote = self._servers[world]
        self._need(zygote, world)
        server = zygote.pid
        outcome = zygote.run(
            f"hostile_{entry}",
            payload.encode() if isinstance(payload, str) else payload,
            limits=limits,
            fds=fds,
        )
        following = zygote.run("hostile_resources:echo", b"still here", limits=LIMITS)
        assert (following.status, following.data) == ("ok", b"still here"), following
        assert zygote.pid == server, "the fork server was replaced"
        self._nothing_left(server, world)
        return outcome

    def protects(self, world: str, name: str) -> bool:
        """Whether this world's server reports a layer as active."""
        return next(
            protection.active
            for protection in self._servers[world].protections
            if protection.name == name
        )

    def _nothing_left(self, server: int, world: str) -> None:
        children = [pid for pid in descendants(server) if parent_of(pid) == server]
        assert len(children) == 1
        left = descendants(children[0])
        # Without a mount namespace a process of ours removes the scratch directory; it ends by
        # itself.
        assert world == "container" or not left, "a process was left behind"
        assert Processes(left).all_end(), "a process was left behind"

    def _need(self, zygote: Zygote, world: str) -> None:
        active = {protection.name for protection in zygote.protections if protection.active}
        # Where a host allows no namespaces, what "full" has left is the world "container".
        wanted = {
            "full": {*NAMESPACES, "private root"},
            "container": {"landlock", "system-call filter"},
            "namespaces only": {*NAMESPACES, "private root"},
        }[world]
        if wanted - active:
            pytest.skip(f"this host lacks {', '.join(sorted(wanted - active))}")


def scratch_of(zygote: Zygote) -> str | None:
    """A running server's directory on the host; None where scratch directories are in memory."""
    assert zygote.protections and zygote._server is not None
    return zygote._server.scratch


def parent_of(pid: int) -> int:
    """Process id of a process's parent; 0 if it is dead, reaped or not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[1])


def descendants(pid: int) -> set[int]:
    """Ids of all living processes below one."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            children.setdefault(parent_of(int(name)), []).append(int(name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting += below
    return found


class Processes:
    """Process descriptors of some processes, so that their end can be awaited whoever their parent
    is.
    """

    def __init__(self, pids: Collection[int]) -> None:
        self._fds: dict[int, int] = {}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                self._fds[os.pidfd_open(pid)] = pid

    def all_end(self, seconds: float = 240.0) -> bool:
        """Whether all have ended within the time."""
        poller = select.poll()
        for fd in self._fds:
            poller.register(fd, select.POLLIN)
        while self._fds:
            ready = poller.poll(seconds * 1000)
            if not ready:
                return False
            for fd, _ in ready:
                poller.unregister(fd)
                os.close(fd)
                del self._fds[fd]
        return True
