"""The fork server's own process: it imports once, then forks one sandboxed child a job.

Started by `zygote.Zygote` and never imported by it. It stays single-threaded, because only then is forking safe, and
runs no code but ours; what is untrusted runs in the children. It ends, and everything it started with it, when
its parent does: the control socket closes, or the parent's process descriptor becomes readable.
"""

from __future__ import annotations

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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from referee.sandbox import namespaces
from referee.sandbox.huge_pages import HugePages
from referee.sandbox.layers import Sandbox
from referee.sandbox.limits import Limits, cpu_seconds
from referee.sandbox.linux import PR_SET_PDEATHSIG, prctl
from referee.sandbox.worker_job import run_job

CLEANING_SECONDS = 5


@dataclass
class _Running:
    """A job's first process, its report socket, the processor time it was given, and whether we ended it."""

    pid: int
    report: socket.socket
    cpu_seconds: int
    killed: bool = False

    def kill(self) -> None:
        """End the process and its group. Only while it has not been waited for: its id is then nobody else's."""
        self.killed = True
        for send in (os.killpg, os.kill):
            try:
                send(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


class Server:
    """Accept requests on the control socket, fork, watch, reap and report."""

    def __init__(self, control: socket.socket, parent: int | None, sandbox: Sandbox, pages: HugePages) -> None:
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
        """Run until the parent is gone."""
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
                # Else it was reaped in this very step.
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
        # Told before the fork: a parent that was not told may safely ask again elsewhere.
        _tell(report, {"started": True})
        pid = self._sandbox.fork()
        if pid == 0:
            run_job(self._sandbox, entry, limits, fds[0], fds[1], fds[2], fds[3:])
        self._running[pid] = _Running(pid, report, cpu_seconds(limits))

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
        # The parent gave the job up; that its end is closed tells the server to kill it.
        return


def _preload(module: str) -> bool:
    """Import a module of ours before forking, so that later jobs have it; whether it was new. A failure is the job's to report."""
    if module in sys.modules:
        return False
    try:
        importlib.import_module(module)
    except Exception:
        return False
    _settle()
    return True


def _settle() -> None:
    """Nothing that is loaded is looked at by the garbage collection of a job, which would copy all of its pages."""
    gc.collect()
    gc.freeze()


def main(config: str) -> NoReturn:
    """Entry point of the process; `config` is the JSON that `zygote.Zygote` wrote.

    This first process only enters the namespaces and waits: the second one is the server, and the first of its
    pid namespace, so that the kernel ends every job with it.
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
        # Kernels before 5.3: the control socket's end is then the only sign that the parent is gone.
        return None


def _wait(server: int, parent: int | None) -> NoReturn:
    if parent is not None:
        poller = select.poll()
        child = os.pidfd_open(server)
        for fd in (parent, child):
            poller.register(fd, select.POLLIN)
        ended = [fd for fd, _ in poller.poll()]
        if child not in ended:
            # The server has seen it too, and is cleaning up.
            poller.unregister(parent)
            if not poller.poll(CLEANING_SECONDS * 1000):
                os.kill(server, signal.SIGKILL)
    os._exit(abs(os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])))


def _serve(settings: dict[str, Any], control: socket.socket, parent: int | None, spaces: namespaces.Namespaces) -> NoReturn:
    sys.path.extend(path for path in settings["path"] if path not in sys.path)
    try:
        for name, folder in settings["found"].items():
            _import_from(name, folder)
        for name in settings["preload"]:
            importlib.import_module(name)
        pages = HugePages()
        sandbox = Sandbox(spaces, settings["readable"], settings["without"])
        _settle()
        pages.again()
        server = Server(control, parent, sandbox, pages)
        ready = {"scratch": sandbox.base, "protections": [asdict(protection) for protection in sandbox.protections]}
        control.send(json.dumps(ready).encode())
    except BaseException:
        _give_up(control)
    server.serve()
    sandbox.close()
    os._exit(0)


def _import_from(name: str, folder: str) -> None:
    """See to it that package `name` is the judge's, in `folder`, also where this interpreter would find another one first."""
    if folder not in sys.path:
        sys.path.append(folder)
    spec = importlib.util.find_spec(name)
    origin = Path(str(spec.origin)).resolve() if spec is not None else Path()
    if Path(folder) not in (origin.parent, origin.parent.parent):
        sys.path.insert(0, folder)


def _give_up(control: socket.socket) -> NoReturn:
    control.send(json.dumps({"error": traceback.format_exc()[-8000:]}).encode())
    os._exit(1)
