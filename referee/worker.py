"""The fork server's own process: it imports once, then forks one sandboxed child a job.

Started by `zygote.Zygote` and never imported by it. It stays single-threaded, because only then is forking safe, and
runs no code but ours; what is untrusted runs in the children. It ends, and everything it started with it, when
its parent does: the control socket closes, or the parent's process descriptor becomes readable.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from dataclasses import dataclass
from typing import Any, NoReturn

from referee.sandbox import Limits, Sandbox, cpu_seconds
from referee.worker_job import run_job


@dataclass
class _Running:
    """A job's first process, its report socket, the processor time it was given, and whether we ended it."""

    pid: int
    report: socket.socket
    cpu_seconds: int
    killed: bool = False

    def kill(self) -> None:
        for send in (os.killpg, os.kill):
            try:
                send(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.killed = True

    def tell(self, message: dict[str, Any]) -> None:
        try:
            self.report.send(json.dumps(message).encode())
        except OSError:
            # The parent gave the job up; its end of the socket is what tells us to kill it.
            return


class Server:
    """Accept requests on the control socket, fork, watch, reap and report."""

    def __init__(self, control: socket.socket, parent: int | None, sandbox: Sandbox) -> None:
        self._control = control
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
        for fd, _ in poller.poll():
            if fd == self._parent:
                return False
            if fd == self._wake:
                os.read(self._wake, 4096)
                self._reap()
            elif fd == self._control.fileno():
                if not self._accept():
                    return False
            else:
                reports[fd].kill()
        return True

    def _accept(self) -> bool:
        try:
            message, fds, _, _ = socket.recv_fds(self._control, 1 << 17, 64)
        except ConnectionError:
            return False
        if not message:
            return False
        request = json.loads(message)
        entry: str = request["entry"]
        fields = request["limits"]
        limits = Limits(fields["seconds"], fields["memory_bytes"], fields["output_bytes"], tuple(fields["allow_exec"]))
        _preload(entry.partition(":")[0])
        pid = self._sandbox.fork()
        if pid == 0:
            run_job(self._sandbox, entry, limits, fds[1], fds[2], fds[3], fds[4:])
        for fd in fds[1:]:
            os.close(fd)
        job = _Running(pid, socket.socket(fileno=fds[0]), cpu_seconds(limits))
        self._running[pid] = job
        job.tell({"started": pid})
        return True

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            job = self._running.pop(pid, None)
            if job is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            end: dict[str, Any] = {"exit": code} if code >= 0 else {"signal": -code}
            if code == -signal.SIGKILL and not job.killed:
                end["outside"] = usage.ru_utime + usage.ru_stime < job.cpu_seconds
            job.kill()
            self._sandbox.clean(pid)
            job.tell(end)
            job.report.close()


def _preload(module: str) -> None:
    """Import a module of ours before forking, so that later jobs have it; a failure is the job's to report."""
    try:
        importlib.import_module(module)
    except Exception:
        return


def main(config: str) -> NoReturn:
    """Entry point of the process; `config` is the JSON that `zygote.Zygote` wrote."""
    settings = json.loads(config)
    control = socket.socket(fileno=settings["control"])
    control.set_inheritable(False)
    sys.path.extend(path for path in settings["path"] if path not in sys.path)
    try:
        parent = os.pidfd_open(settings["parent"])
        sandbox = Sandbox()
        for name in settings["preload"]:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()
        server = Server(control, parent, sandbox)
        ready = {"scratch": sandbox.base, "protections": [[p.name, p.active, p.detail] for p in sandbox.protections]}
        control.send(json.dumps(ready).encode())
    except BaseException:
        control.send(json.dumps({"error": traceback.format_exc()[-8000:]}).encode())
        os._exit(1)
    server.serve()
    sandbox.close()
    os._exit(0)
