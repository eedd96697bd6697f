"""The fork server's process: it imports once, then forks one sandboxed child per job.

`zygote.Zygote` starts it and never imports it. It stays single-threaded, because only then is
forking safe, and runs only kmint's code; untrusted code runs in the children. It ends with its
children when its parent does: the control socket closes, or the parent's process descriptor becomes
readable.


`HugePages` keeps the server's loaded memory in huge pages, so that it forks faster: a fork copies
one entry per page. Linux does so alone only where it is configured, and slowly; from 6.1 on a
process may request it (MADV_COLLAPSE). It happens in steps, because each step takes milliseconds.
Limits: a page that is written while a child shares it becomes small again. Where Linux refuses,
nothing changes.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from referee.sandbox import namespaces
from referee.sandbox.layers import Sandbox
from referee.sandbox.limits import Limits, cpu_seconds
from referee.sandbox.linux import PR_SET_PDEATHSIG, call, prctl
from referee.sandbox.worker_job import run_job

_HUGE = 2 << 20
_MADV_COLLAPSE = 25


class HugePages:
    """The huge pages of the calling process, which must still see /proc."""

    def __init__(self) -> None:
        self._pending: list[int] = []
        try:
            self._maps = os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._maps = -1

    @property
    def pending(self) -> bool:
        """Whether a step is left."""
        return bool(self._pending)

    def again(self) -> None:
        """Starts over, because there is more memory than before."""
        self._pending = list(self._addresses())

    def step(self) -> None:
        """Does the next step."""
        try:
            call(
                "madvise",
                ctypes.c_void_p(self._pending.pop()),
                ctypes.c_size_t(_HUGE),
                _MADV_COLLAPSE,
            )
        except OSError:
            # This kernel, or this memory, refuses; the next memory may work.
            return

    def _addresses(self) -> Iterator[int]:
        """Addresses where a huge page fits into memory that this process alone has filled."""
        if self._maps == -1:
            return
        with open(os.dup(self._maps), encoding="utf-8") as maps:
            maps.seek(0)
            lines = maps.read().splitlines()
        for line in lines:
            span, rights, _, _, _, *name = line.split(maxsplit=5)
            start, end = (int(part, 16) for part in span.split("-"))
            if rights == "rw-p" and name in ([], ["[heap]"]):
                first = -(-start // _HUGE) * _HUGE
                yield from range(first, end - _HUGE + 1, _HUGE)


CLEANING_SECONDS = 5


@dataclass
class _Running:
    """A job's first process, its report socket, its time, and whether the server ended it."""

    pid: int
    report: socket.socket
    cpu_seconds: int
    killed: bool = False

    def kill(self) -> None:
        """Ends the process and its group. Call it before the process is reaped."""
        self.killed = True
        for send in (os.killpg, os.kill):
            try:
                send(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


class Server:
    """Accepts requests on the control socket, forks, watches, reaps and reports."""

    def __init__(
        self, control: socket.socket, parent: int | None, sandbox: Sandbox, pages: HugePages
    ) -> None:
        self._control, self._pages = control, pages
        self._parent = parent
        self._sandbox = sandbox
        self._running: dict[int, _Running] = {}
        self._wake, wake_write = os.pipe()
        for fd in (self._wake, wake_write):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Runs until the parent is gone."""
        try:
            while self._step():
                pass
        finally:
            for job in self._running.values():
                job.kill()

    def _step(self) -> bool:
        poller = select.poll()
        reports = {job.report.fileno(): job for job in self._running.values() if not job.killed}
        parent = [] if self._parent is None else [self._parent]
        for fd in (self._control.fileno(), self._wake, *parent, *reports):
            poller.register(fd, select.POLLIN)
        ready = poller.poll(0 if self._pages.pending else None)
        if not ready:
            self._pages.step()
        for fd, _ in ready:
            if fd == self._parent:
                return False
            if fd == self._wake:
                os.read(self._wake, 4096)
                self._reap()
            elif fd == self._control.fileno():
                if not self._accept():
                    return False
            elif reports[fd].pid in self._running:
                # Otherwise it was reaped in this very step.
                reports[fd].kill()
        return True

    def _accept(self) -> bool:
        try:
            message, fds, _, _ = socket.recv_fds(self._control, 1 << 17, 64)
        except ConnectionError:
            return False
        if not message:
            return False
        report = socket.socket(fileno=fds[0])
        try:
            self._start(json.loads(message), report, fds[1:])
        except OSError as error:
            _tell(report, {"failed": f"cannot fork: {error}"})
            report.close()
        finally:
            for fd in fds[1:]:
                os.close(fd)
        return True

    def _start(self, request: dict[str, Any], report: socket.socket, fds: list[int]) -> None:
        entry: str = request["entry"]
        fields = request["limits"]
        limits = Limits(**{**fields, "allow_exec": tuple(fields["allow_exec"])})
        if _preload(entry.partition(":")[0]):
            self._pages.again()
        # Reported before the fork: a parent without this report may safely repeat the request.
        _tell(report, {"started": True})
        pid = self._sandbox.fork()
        if pid == 0:
            run_job(self._sandbox, entry, limits, fds[0], fds[1], fds[2], fds[3:])
        self._running[pid] = _Running(pid, report, cpu_seconds(limits))
        _tell_process(report, pid)

    def _reap(self) -> None:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            job = self._running.pop(ended.si_pid, None)
            killed = job is not None and job.killed
            if job is not None:
                job.kill()
            _, status, usage = os.wait4(ended.si_pid, 0)
            if job is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            end: dict[str, Any] = {"exit": code} if code >= 0 else {"signal": -code}
            if code == -signal.SIGKILL and not killed:
                end["outside"] = usage.ru_utime + usage.ru_stime < job.cpu_seconds
            self._sandbox.clean(job.pid)
            _tell(job.report, end)
            job.report.close()


def _tell(report: socket.socket, message: dict[str, Any]) -> None:
    try:
        report.send(json.dumps(message).encode())
    except OSError:
        # The parent gave the job up; the closed socket makes the server kill it.
        return


def _tell_process(report: socket.socket, pid: int) -> None:
    """Gives the parent a descriptor of the job's process, whose id differs there."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        # Kernels before 5.3, or a container that forbids it.
        return
    try:
        socket.send_fds(report, [json.dumps({"process": True}).encode()], [process])
    except OSError:
        # The parent gave the job up.
        return
    finally:
        os.close(process)


def _preload(module: str) -> bool:
    """Imports a module of kmint before forking; True if it was new. The job reports failures."""
    if module in sys.modules:
        return False
    try:
        importlib.import_module(module)
    except Exception:
        return False
    _settle()
    return True


def _settle() -> None:
    """Keeps loaded objects from the jobs' garbage collection, which would copy them."""
    gc.collect()
    gc.freeze()


def main(config: str) -> NoReturn:
    """Entry point of the process; `config` is the JSON of `zygote.Zygote`.

    This first process only enters the namespaces and waits. The second one is the server and the
    first of its pid namespace, so the kernel ends every job with it.
    """
    settings = json.loads(config)
    control = socket.socket(fileno=settings["control"])
    control.set_inheritable(False)
    try:
        os.nice(settings["nice"])
        parent = _process_descriptor(settings["parent"])
        spaces = namespaces.enter(settings["without"])
        server = os.fork()
    except BaseException:
        _give_up(control)
    if server == 0:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        _serve(settings, control, parent, spaces)
    control.close()
    _wait(server, parent)


def _process_descriptor(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        # Kernels before 5.3: only the control socket's end shows that the parent is gone.
        return None


def _wait(server: int, parent: int | None) -> NoReturn:
    if parent is not None:
        poller = select.poll()
        child = os.pidfd_open(server)
        for fd in (parent, child):
            poller.register(fd, select.POLLIN)
        ended = [fd for fd, _ in poller.poll()]
        if child not in ended:
            # The server has seen it too and is cleaning up.
            poller.unregister(parent)
            if not poller.poll(CLEANING_SECONDS * 1000):
                os.kill(server, signal.SIGKILL)
    os._exit(abs(os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])))


def _serve(
    settings: dict[str, Any],
    control: socket.socket,
    parent: int | None,
    spaces: namespaces.Namespaces,
) -> NoReturn:
    sys.path.extend(path for path in settings["path"] if path not in sys.path)
    try:
        for name, folder in settings["found"].items():
            _import_from(name, folder)
        for name in settings["preload"]:
            importlib.import_module(name)
        pages = HugePages()
        sandbox = Sandbox(spaces, settings["readable"], settings["without"])
        _settle()
        server = Server(control, parent, sandbox, pages)
        ready = {
            "scratch": sandbox.base,
            "protections": [asdict(protection) for protection in sandbox.protections],
        }
        control.send(json.dumps(ready).encode())
    except BaseException:
        _give_up(control)
    for name in settings["ahead"]:
        _preload(name)
    pages.again()
    server.serve()
    sandbox.close()
    os._exit(0)


def _import_from(name: str, folder: str) -> None:
    """Makes sure that package `name` is the judge's, in `folder`, and no other."""
    if folder not in sys.path:
        sys.path.append(folder)
    spec = importlib.util.find_spec(name)
    origin = Path(str(spec.origin)).resolve() if spec is not None else Path()
    if Path(folder) not in (origin.parent, origin.parent.parent):
        sys.path.insert(0, folder)


def _give_up(control: socket.socket) -> NoReturn:
    control.send(json.dumps({"error": traceback.format_exc()[-8000:]}).encode())
    os._exit(1)
