"""Runs trusted entry functions, and the untrusted code that they load, in sandboxed single-use
processes.

A `Zygote` owns one clean fork server: a single-threaded process with torch and triton imported, a
scrubbed environment and no visible GPU. Each `run` forks one child there, which enters the sandbox
(`layers`), calls one function of kmint and ends. No child is used twice. The child could have
forged the returned bytes: callers parse them strictly and trust nothing in them. Linux only. Memory
limits count a job's allocations beyond the preloaded modules.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from referee import python_child
from referee.concurrency import CancelToken
from referee.sandbox.clock import Clock, threads_of
from referee.sandbox.demand import Demand, Protection, unmet
from referee.sandbox.file_view import locate
from referee.sandbox.limits import Limits
from referee.sandbox.removal import remove_tree
from referee.sandbox.zygote_job import Job, JobLost, MachineBusy, Outcome, ServerGone
from referee.versions import switches, triton_version

__all__ = [
    "DEFAULT_PRELOAD",
    "JobLost",
    "Limits",
    "MachineBusy",
    "Outcome",
    "Protection",
    "SandboxTooWeak",
    "Workers",
    "Zygote",
    "ZygoteError",
]

DEFAULT_PRELOAD = ("torch", "triton", "triton.language")
INTERPRETING_PRELOAD = ("triton", "triton.language")
"""Modules for Triton's interpreter. A job can still import torch, which takes a second."""
COMPILERS_NICE = 10
"""For jobs next to a process that fills a GPU's queue: every candidate waits for that process."""
STARTUP_SECONDS = 180.0
CLOSE_SECONDS = 3.0
MAX_FDS = 32


class ZygoteError(RuntimeError):
    """The fork server could not be started; the message says why."""


class SandboxTooWeak(ZygoteError):
    """The host lacks demanded layers of the sandbox; the message names them."""


class _EndedEarly(ZygoteError):
    """The server ended without a report, perhaps because it was killed."""


@dataclass
class _Server:
    """One fork-server process and its reports about itself."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    errors: int
    protections: tuple[Protection, ...] | None = None
    scratch: str | None = None

    def last_words(self) -> str:
        size = os.fstat(self.errors).st_size
        return os.pread(self.errors, 2000, max(0, size - 2000)).decode("utf-8", "replace").strip()


class Zygote:
    """A handle on the fork server. Construction returns at once; the first `run` waits for the
    imports.

    `preload` names the modules that the server imports once, by default those of all jobs. `ahead`
    names kmint's modules that jobs will call; they are imported once the server is ready.
    `extra_path` adds readable import directories. `without` names layers to leave out, for a host
    where one misbehaves; they are reported as missing. `demand` names the layers that must be
    active. Without one of them every call raises SandboxTooWeak, and no candidate runs. `nice`
    above 0 gives other processes priority.
    """

    def __init__(
        self,
        interpret: bool = False,
        *,
        preload: Sequence[str] | None = None,
        ahead: Sequence[str] = (),
        extra_path: Sequence[str] = (),
        without: Collection[str] = (),
        demand: Demand = "files",
        nice: int = 0,
    ) -> None:
        if sys.platform != "linux":
            raise ZygoteError(f"the sandbox needs Linux; this is {sys.platform}")
        self._interpret = interpret
        usual = INTERPRETING_PRELOAD if interpret else DEFAULT_PRELOAD
        self._preload = tuple(usual if preload is None else preload)
        self._reachable = DEFAULT_PRELOAD if preload is None else self._preload
        self._ahead = tuple(ahead)
        self._extra_path = tuple(str(Path(path).resolve()) for path in extra_path)
        self._without = tuple(without)
        self._demand = demand
        self._refusal = ""
        self._nice = nice
        self._lock = threading.Lock()
        self._running: list[str] = []
        self._closed = False
        self._server: _Server | None = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def protections(self) -> tuple[Protection, ...]:
        """Every layer of the sandbox, active or not. Waits for the server. Raises ZygoteError."""
        return self._ready().protections or ()

    @property
    def pid(self) -> int:
        """Process id of the fork server. Waits for it. Raises ZygoteError if it cannot start."""
        return self._ready().process.pid

    def run(
        self,
        entry: str,
        payload: bytes,
        *,
        limits: Limits,
        fds: Sequence[int] = (),
        cancel: CancelToken | None = None,
    ) -> Outcome:
        """Calls `entry` ("package.module:function") in a fresh sandboxed child and waits for its
        end.

        The function is called as fn(payload, scratch, fds) -> bytes; `fds` are duplicates of the
        given descriptors. The clock starts with the child; a readable `cancel` ends the time at once.
        A server that died is restarted. Raises ZygoteError if that fails, ValueError for more than
        MAX_FDS descriptors, OSError for a closed one.
        """
        if len(fds) > MAX_FDS:
            raise ValueError(f"a job takes at most {MAX_FDS} descriptors, not {len(fds)}")
        request = json.dumps({"entry": entry, "limits": asdict(limits)}).encode()
        self._running.append(entry)
        try:
            return self._run(request, payload, limits, fds, cancel)
        finally:
            self._running.remove(entry)

    def running(self, entry: str) -> int:
        """Number of running jobs that call this entry."""
        return self._running.count(entry)

    def _run(
        self,
        request: bytes,
        payload: bytes,
        limits: Limits,
        fds: Sequence[int],
        cancel: CancelToken | None,
    ) -> Outcome:
        for _ in range(2):
            server = self._ready()
            try:
                with Job(server.control, request, payload, fds, server.process.pid) as job:
                    return job.watch(limits.seconds, limits.output_bytes, cancel)
            except ServerGone as gone:
                self._discard(server)
                if gone.started:
                    return Outcome(
                        "crash",
                        b"",
                        "the fork server died under the job",
                        gone.seconds,
                        killed_outside=True,
                    )
        return Outcome(
            "crash",
            b"",
            "the fork server died twice before the job could start",
            0.0,
            killed_outside=True,
        )

    def close(self) -> None:
        """Kills every job and ends the server, also at its start. May be called repeatedly."""
        self._closed = True
        starting = self._server
        if starting is not None and starting.protections is None:
            # A caller that waits for it holds the lock.
            starting.process.kill()
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            _stop(server)

    def _start(self) -> _Server:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        errors = os.memfd_create("zygote-errors")
        found, readable = locate(self._reachable)
        config = {
            "parent": os.getpid(),
            "control": theirs.fileno(),
            "preload": self._preload,
            "ahead": self._ahead,
            "path": list(self._extra_path),
            "found": found,
            "readable": [*self._extra_path, *dict.fromkeys(readable)],
            "without": self._without,
            "nice": self._nice,
        }
        start = (
            "sys.dont_write_bytecode = True; from referee.sandbox.worker import main; "
            f"main({json.dumps(config)!r})"
        )
        try:
            process = subprocess.Popen(
                python_child.command(start, path=()),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                cwd=python_child.WORKING_FOLDER,
                env=_environment(self._interpret),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            os.close(errors)
            raise ZygoteError(f"cannot start {sys.executable}: {error}") from error
        finally:
            theirs.close()
        return _Server(process, ours, errors)

    def _ready(self) -> _Server:
        with self._lock:
            self._refuse_if_closed()
            if self._refusal:
                # A new server would find the same host.
                raise SandboxTooWeak(self._refusal)
            if (
                self._server is not None
                and self._server.process.poll() is not None
                and self._server.protections is not None
            ):
                server, self._server = self._server, None
                _stop(server)
            for attempt in (1, 2):
                if self._server is None:
                    self._server = self._start()
                if self._server.protections is not None:
                    break
                try:
                    self._refuse_if_closed()
                    _handshake(self._server)
                    self._refuse_if_weak(self._server.protections or ())
                except BaseException as error:
                    server, self._server = self._server, None
                    _stop(server)
                    if not isinstance(error, _EndedEarly):
                        raise
                    self._refuse_if_closed()
                    if attempt == 2:
                        raise
            assert self._server is not None
            return self._server

    def _refuse_if_weak(self, protections: Sequence[Protection]) -> None:
        self._refusal = unmet(protections, self._demand)
        if self._refusal:
            raise SandboxTooWeak(self._refusal)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ZygoteError("this zygote is closed")

    def _discard(self, server: _Server) -> None:
        with self._lock:
            if self._server is not server:
                return
            self._server = None
        _stop(server)


class Workers(Zygote):
    """A fork server that distinguishes a lost job from a candidate's failure.

    A job that an outside cause ended (a stray signal, a machine out of memory) runs once more. If
    that is lost too, the judge reports that it learned nothing of the candidate.
    """

    def run(
        self,
        entry: str,
        payload: bytes,
        *,
        limits: Limits,
        fds: Sequence[int] = (),
        cancel: CancelToken | None = None,
    ) -> Outcome:
        """As `Zygote.run`, without outcomes that say nothing of the job. Raises JobLost."""
        for _ in range(2):
            outcome = super().run(entry, payload, limits=limits, fds=fds, cancel=cancel)
            if outcome.status == "starved":
                # A second run would find the same machine.
                raise MachineBusy(outcome.detail)
            if not outcome.killed_outside:
                return outcome
        raise JobLost(f"a worker was lost twice: {outcome.detail}")


def _handshake(server: _Server) -> None:
    server.control.settimeout(STARTUP_SECONDS)
    clock = Clock(STARTUP_SECONDS, lambda: threads_of(server.process.pid))
    if up := clock.wait_for(server.control.fileno()):
        silent = f"the fork server said nothing for {STARTUP_SECONDS:.0f} s"
        why = silent if up == "timeout" else clock.words()
        raise ZygoteError(f"{why}; it printed: {server.last_words()}")
    try:
        message = server.control.recv(1 << 16)
    except OSError:
        message = b""
    if not message:
        raise _EndedEarly(
            f"the fork server ended while starting; it printed: {server.last_words()}"
        )
    report = json.loads(message)
    if "error" in report:
        raise ZygoteError(f"the fork server could not start: {report['error']}")
    server.scratch = report["scratch"]
    server.protections = tuple(Protection(**entry) for entry in report["protections"])


def _stop(server: _Server) -> None:
    server.control.close()
    if server.protections is None:
        # The server still imports and does not listen yet, so it has no job.
        server.process.kill()
    try:
        server.process.wait(CLOSE_SECONDS)
    except subprocess.TimeoutExpired:
        server.process.kill()
        server.process.wait()
    finally:
        os.close(server.errors)
        if server.scratch is not None:
            # The server removes it, unless it was killed.
            remove_tree(server.scratch)


def _environment(interpret: bool) -> dict[str, str]:
    environment = {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": "/nonexistent",
        "USER": "sandbox",
        "TMPDIR": "/nonexistent",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
    }
    if (triton := triton_version()) is not None:
        environment |= switches(triton)
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    if "LD_LIBRARY_PATH" in os.environ:
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    return environment
