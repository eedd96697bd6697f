"""The layers of a job's sandbox, in the order in which the fork server and each job apply them.

Every layer is tried once at start, by the server or by a trial job, and reported by name, active or
not. A job that cannot apply a layer of the trial does not run: the sandbox fails closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict

from referee.sandbox import file_view, landlock, limits, linux, namespaces, seccomp
from referee.sandbox.demand import Protection
from referee.sandbox.limits import Limits
from referee.sandbox.linux import (
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    prctl,
    unshare,
)
from referee.sandbox.namespaces import NOBODY, Namespaces
from referee.sandbox.removal import remove_tree

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_INTERPRETER_SEGMENT = 3


def loader_of(program: str) -> str | None:
    """Path of the loader named in a 64-bit ELF file; None for other files and static programs."""
    with open(program, "rb") as file:
        start = file.read(_HEADER.size)
        if len(start) < _HEADER.size or start[:6] != b"\x7fELF\x02\x01":
            return None
        fields = _HEADER.unpack(start)
        offset, entry_size, entries = fields[4], fields[8], fields[9]
        for index in range(entries):
            file.seek(offset + index * entry_size)
            kind, _, begin, _, _, size, _, _ = _PROGRAM_HEADER.unpack(
                file.read(_PROGRAM_HEADER.size)
            )
            if kind == _INTERPRETER_SEGMENT:
                file.seek(begin)
                return os.fsdecode(file.read(size).rstrip(b"\0"))
    return None


_SIGKILL = 9
_TRIAL = Limits(seconds=10.0, memory_bytes=1 << 30, output_bytes=0)
_PROCESS_FILES = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/filesystems")
_LEFT_OUT = "left out on request"


class SandboxError(RuntimeError):
    """A job could not apply a layer that this host has."""


class Sandbox:
    """The fork server's side of the sandbox and, after `fork`, the job's side.

    Make it in the server's process, after the imports and before any thread exists. `readable` are
    further paths that jobs may read; `without` names layers to leave out. `base` is the host
    directory of the scratch directories, if they are not in memory.
    """

    def __init__(
        self, spaces: Namespaces, readable: Collection[str], without: Collection[str] = ()
    ) -> None:
        self._spaces = spaces
        self._without = frozenset(without)
        self._readable = file_view.readable_paths(readable)
        self._base_bytes = limits.virtual_bytes()
        self._home = (
            os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
            if spaces.has(CLONE_NEWPID)
            else None
        )
        self._server_pid = os.getpid()
        view = self._enter_view()
        self._base = file_view.SCRATCH if view.active else tempfile.mkdtemp(prefix="kmint-jobs-")
        self.base = None if view.active else self._base
        # Jobs run as another user: they must pass through, and see no names.
        os.chmod(self._base, 0o711)
        self._scratches: dict[int, str] = {}
        self._next_scratch = self._base
        self._private_root = view.active
        self._unshared_mounts = False
        self._own_proc = False
        self._alone = False
        self._required: frozenset[str] | None = None
        layers = self._trial()
        self._required = frozenset(layer.name for layer in layers if layer.active)
        self.protections = (*spaces.protections, view, *layers)
        prctl(PR_SET_DUMPABLE, 0)

    def fork(self) -> int:
        """As os.fork; the child is the first process of a new pid namespace, if there is one."""
        self._next_scratch = tempfile.mkdtemp(dir=self._base)
        pid = os.fork() if self._home is None else namespaces.fork_into_pid_namespace(self._home)
        if pid != 0:
            self._scratches[pid] = self._next_scratch
        return pid

    def clean(self, pid: int) -> None:
        """Removes the remains of this process's job. It may take long, so a child may do it."""
        scratch = self._scratches.pop(pid)
        with contextlib.suppress(OSError):
            os.rmdir(scratch)
            return
        with contextlib.suppress(OSError):
            if os.fork() == 0:
                try:
                    _keep_only(())
                    remove_tree(scratch)
                finally:
                    os._exit(0)

    def close(self) -> None:
        """Removes every scratch directory."""
        remove_tree(self._base)

    def enter(self, job: Limits, keep: Sequence[int]) -> str:
        """Applies every layer in the child, keeping the descriptors `keep`. Returns the scratch
        directory.

        Raises SandboxError if a layer of the trial fails.
        """
        self._take_on(job, keep)
        return self._next_scratch

    def _enter_view(self) -> Protection:
        name = "private root"
        if name in self._without:
            return Protection(name, False, _LEFT_OUT)
        if not self._spaces.has(CLONE_NEWNS):
            return Protection(name, False, "needs a mount namespace")

        def attempt() -> None:
            unshare(CLONE_NEWNS)
            file_view.enter(self._readable)

        reason = namespaces.try_in_child(attempt)
        if not reason:
            file_view.enter(self._readable)
        return Protection(
            name, not reason, reason or f"{len(self._readable)} paths of the host, read-only"
        )

    def _trial(self) -> tuple[Protection, ...]:
        read, write = os.pipe()
        pid = self.fork()
        if pid == 0:
            try:
                layers = self._take_on(_TRIAL, [write])
                os.write(write, json.dumps([asdict(layer) for layer in layers]).encode())
            finally:
                os._exit(0)
        os.close(write)
        with open(read, "rb") as answer:
            report = answer.read()
        os.waitpid(pid, 0)
        self.clean(pid)
        if not report:
            raise SandboxError("the trial job died while entering the sandbox")
        return tuple(Protection(**layer) for layer in json.loads(report))

    def _take_on(self, job: Limits, keep: Sequence[int]) -> list[Protection]:
        os.setsid()
        prctl(PR_SET_DUMPABLE, 1)
        process = _open_own_process()
        layers: tuple[tuple[str, Callable[[], str]], ...] = (
            (
                "closed descriptors",
                lambda: _keep_only([*keep, process] if process is not None else keep),
            ),
            ("private /proc", self._mount_own_proc),
            ("scratch quota", self._mount_own_scratch),
            ("unprivileged user", self._become_nobody),
            ("parent death signal", self._die_with_server),
            ("job namespaces", lambda: self._nest(process)),
            ("resource limits", lambda: limits.apply(job, self._address_space())),
            ("no capabilities", linux.no_capabilities),
            ("thread limit", self._limit_threads),
            ("no new privileges", linux.no_new_privileges),
            ("landlock", lambda: landlock.describe(landlock.restrict(self._rules(job)))),
            ("not dumpable", linux.not_dumpable),
            (
                "system-call filter",
                lambda: f"allow-list, {seccomp.install(execute=bool(job.allow_exec))} instructions",
            ),
        )
        taken = []
        for name, layer in layers:
            taken.append(self._take_on_one(name, layer))
            if process is not None and name == "job namespaces":
                os.close(process)
        return taken

    def _take_on_one(self, name: str, layer: Callable[[], str]) -> Protection:
        if name in self._without:
            return Protection(name, False, _LEFT_OUT)
        if self._required is not None and name not in self._required:
            return Protection(name, False, "the trial could not take it on")
        try:
            return Protection(name, True, layer())
        except OSError as error:
            if self._required is not None:
                raise SandboxError(f"cannot take on {name}: {error}") from error
            return Protection(name, False, str(error))

    def _mount_own_proc(self) -> str:
        if not self._spaces.has(CLONE_NEWPID):
            raise OSError("needs a pid namespace")
        self._own_mounts()
        if self._private_root and not os.path.isdir("/proc/self"):
            return "there is none at all"
        file_view.mount_proc()
        self._own_proc = True
        return "shows the job alone, read-only"

    def _mount_own_scratch(self) -> str:
        self._own_mounts()
        file_view.mount_scratch(self._next_scratch)
        return f"{file_view.SCRATCH_BYTES >> 20} MiB and {file_view.SCRATCH_FILES} files, in memory"

    def _own_mounts(self) -> None:
        if not self._spaces.has(CLONE_NEWNS):
            raise OSError("needs a mount namespace")
        if not self._unshared_mounts:
            unshare(CLONE_NEWNS)
            self._unshared_mounts = True

    def _become_nobody(self) -> str:
        if os.geteuid() != 0:
            return f"uid {os.geteuid()}"
        if self._required is None:
            reason = namespaces.try_in_child(_be_nobody_and_read)
            if reason:
                raise OSError(reason)
        os.chown(self._next_scratch, NOBODY, NOBODY)
        _set_ids(NOBODY)
        prctl(PR_SET_DUMPABLE, 1)
        self._alone = True
        return f"uid {NOBODY}, not root"

    def _die_with_server(self) -> str:
        prctl(PR_SET_PDEATHSIG, _SIGKILL)
        if self._home is None and os.getppid() != self._server_pid:
            os._exit(1)
        return "a job is killed with its server"

    def _nest(self, process: int | None) -> str:
        if not self._spaces.has(CLONE_NEWUSER):
            raise OSError("needs a user namespace")
        if process is None:
            raise OSError("needs /proc")
        namespaces.nest(process)
        self._alone = True
        return "own user and ipc namespaces for every job"

    def _limit_threads(self) -> str:
        if not self._alone:
            raise OSError("threads are counted by user, and this user has other processes")
        if self._required is None and not limits.threads_are_limited():
            raise OSError("jobs run as root, whose threads are not limited")
        return limits.limit_threads()

    def _address_space(self) -> int:
        try:
            return limits.virtual_bytes()
        except OSError:
            return self._base_bytes

    def _rules(self, job: Limits) -> list[landlock.Rule]:
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        rules = [
            landlock.Rule(path, landlock.READ) for path in (*self._readable, *file_view.DEVICES)
        ]
        rules.append(landlock.Rule(root, landlock.READ_DIR))
        rules.append(landlock.Rule("/dev/null", landlock.READ | landlock.WRITE_FILE))
        rules.append(landlock.Rule(self._next_scratch, landlock.WRITE))
        rules += [
            landlock.Rule(path, landlock.READ)
            for path in (("/proc",) if self._own_proc else _PROCESS_FILES)
        ]
        for program in job.allow_exec:
            paths = (program, loader_of(program))
            rules += [
                landlock.Rule(path, landlock.READ | landlock.EXECUTE)
                for path in paths
                if path is not None
            ]
        return rules


def _open_own_process() -> int | None:
    try:
        return os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None


def _keep_only(fds: Sequence[int]) -> str:
    low = 3
    for fd in sorted(fds):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))
    return "nothing inherited but the result pipe and what the job was given"


def _set_ids(identity: int) -> None:
    os.setgroups([])
    os.setresgid(identity, identity, identity)
    os.setresuid(identity, identity, identity)


def _be_nobody_and_read() -> None:
    """Checks that imported files are still readable: otherwise a job could import nothing more."""
    _set_ids(NOBODY)
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and os.path.isabs(path) and not os.access(path, os.R_OK):
            raise OSError(f"{path} is not readable for others")
