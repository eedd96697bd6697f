"""Run trusted entry functions, and the untrusted code they load, in sandboxed single-use processes.

A `Zygote` owns one clean fork server: a process with torch and triton already imported, a scrubbed environment, no
visible GPU and no thread but its own. Each `run` forks one child there, which enters the sandbox (`sandbox.py`), calls
one function of ours and ends. A child is never used twice.

What comes back is bytes that the child could have forged: callers parse them strictly and trust nothing in them.
Linux only. Memory limits count what a job allocates beyond the preloaded modules.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from referee.sandbox.limits import Limits
from referee.sandbox.outcome import Outcome
from referee.sandbox.protection import Protection
from referee.sandbox.removal import remove_tree
from referee.sandbox.zygote_job import Job, ServerGone

__all__ = ["DEFAULT_PRELOAD", "Limits", "Outcome", "Protection", "Zygote", "ZygoteError"]

DEFAULT_PRELOAD = ("torch", "triton", "triton.language")
STARTUP_SECONDS = 180.0
CLOSE_SECONDS = 3.0
MAX_FDS = 32


class ZygoteError(RuntimeError):
    """The fork server could not be started; the message says why."""


class _EndedEarly(ZygoteError):
    """The server ended without a word, perhaps because someone killed it."""


@dataclass
class _Server:
    """One fork-server process and what it has said of itself."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    errors: int
    protections: tuple[Protection, ...] | None = None
    scratch: str | None = None

    def last_words(self) -> str:
        size = os.fstat(self.errors).st_size
        return os.pread(self.errors, 2000, max(0, size - 2000)).decode("utf-8", "replace").strip()


class Zygote:
    """A handle on the fork server. Construction returns at once; the first `run` waits for the imports.

    `preload` names the modules imported once in the server; `extra_path` adds readable import directories.
    `without` names layers of the sandbox to leave out, for a host where one misbehaves; they are reported as missing.
    `nice` above 0 lets other processes go first where processors are short.
    """

    def __init__(
        self,
        interpret: bool = False,
        *,
        preload: Sequence[str] = DEFAULT_PRELOAD,
        extra_path: Sequence[str] = (),
        without: Collection[str] = (),
        nice: int = 0,
    ) -> None:
        if sys.platform != "linux":
            raise ZygoteError(f"the sandbox needs Linux; this is {sys.platform}")
        self._interpret = interpret
        self._preload = tuple(preload)
        self._extra_path = tuple(str(Path(path).resolve()) for path in extra_path)
        self._without = tuple(without)
        self._nice = nice
        self._lock = threading.Lock()
        self._running: list[str] = []
        self._closed = False
        self._server: _Server | None = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def protections(self) -> tuple[Protection, ...]:
        """Every layer of the sandbox, active or not. Waits for the server; raises ZygoteError if it cannot start."""
        return self._ready().protections or ()

    @property
    def pid(self) -> int:
        """Process id of the fork server. Waits for it; raises ZygoteError if it cannot start."""
        return self._ready().process.pid

    def run(self, entry: str, payload: bytes, *, limits: Limits, fds: Sequence[int] = (), stop: int | None = None) -> Outcome:
        """Call `entry` ("package.module:function") in a fresh sandboxed child and wait for its end.

        The function is called as fn(payload, scratch, fds) -> bytes; `fds` are duplicates of the given descriptors.
        The clock starts when the child does; time is up at once when something can be read from `stop`. A server that died is
        restarted. Raises ZygoteError if that fails, ValueError for more than MAX_FDS descriptors, OSError for one that is not open.
        """
        if len(fds) > MAX_FDS:
            raise ValueError(f"a job takes at most {MAX_FDS} descriptors, not {len(fds)}")
        request = json.dumps({"entry": entry, "limits": asdict(limits)}).encode()
        self._running.append(entry)
        try:
            return self._run(request, payload, limits, fds, stop)
        finally:
            self._running.remove(entry)

    def running(self, entry: str) -> int:
        """How many jobs that call this entry there are now."""
        return self._running.count(entry)

    def _run(self, request: bytes, payload: bytes, limits: Limits, fds: Sequence[int], stop: int | None) -> Outcome:
        for _ in range(2):
            server = self._ready()
            try:
                with Job(server.control, request, payload, fds) as job:
                    return job.watch(limits.seconds, limits.output_bytes, stop)
            except ServerGone as gone:
                self._discard(server)
                if gone.started:
                    return Outcome("crash", b"", "the fork server died under the job", gone.seconds, killed_outside=True)
        return Outcome("crash", b"", "the fork server died twice before the job could start", 0.0, killed_outside=True)

    def close(self) -> None:
        """Kill every job and end the server, also one that is still starting. May be called more than once."""
        self._closed = True
        starting = self._server
        if starting is not None and starting.protections is None:
            # Whoever waits for it holds the lock.
            starting.process.kill()
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            _stop(server)

    def _start(self) -> _Server:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        errors = os.memfd_create("zygote-errors")
        found, readable = _find(self._preload)
        config = {
            "parent": os.getpid(),
            "control": theirs.fileno(),
            "preload": self._preload,
            "path": list(self._extra_path),
            "found": found,
            "readable": [*self._extra_path, *dict.fromkeys(readable)],
            "without": self._without,
            "nice": self._nice,
        }
        root = str(Path(__file__).resolve().parents[2])
        command = f"import sys; sys.path.append({root!r}); from referee.sandbox.worker import main; main({json.dumps(config)!r})"
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-s", "-B", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                cwd="/",
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
            if self._server is not None and self._server.process.poll() is not None and self._server.protections is not None:
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

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ZygoteError("this zygote is closed")

    def _discard(self, server: _Server) -> None:
        with self._lock:
            if self._server is not server:
                return
            self._server = None
        _stop(server)


def _handshake(server: _Server) -> None:
    server.control.settimeout(STARTUP_SECONDS)
    try:
        message = server.control.recv(1 << 16)
    except TimeoutError:
        raise ZygoteError(f"the fork server said nothing for {STARTUP_SECONDS:.0f} s; it printed: {server.last_words()}") from None
    except OSError:
        message = b""
    if not message:
        raise _EndedEarly(f"the fork server ended while starting; it printed: {server.last_words()}")
    report = json.loads(message)
    if "error" in report:
        raise ZygoteError(f"the fork server could not start: {report['error']}")
    server.scratch = report["scratch"]
    server.protections = tuple(Protection(**entry) for entry in report["protections"])


def _stop(server: _Server) -> None:
    server.control.close()
    if server.protections is None:
        # It is importing and does not listen yet; it has no job.
        server.process.kill()
    try:
        server.process.wait(CLOSE_SECONDS)
    except subprocess.TimeoutExpired:
        server.process.kill()
        server.process.wait()
    finally:
        os.close(server.errors)
        if server.scratch is not None:
            # The server removes it itself, unless it was killed.
            remove_tree(server.scratch)


def _environment(interpret: bool) -> dict[str, str]:
    environment = {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": "/nonexistent",
        "USER": "sandbox",
        "TMPDIR": "/nonexistent",
        # The order of sets is as it happens to be in a user's process.
        "PYTHONHASHSEED": str(secrets.randbelow(1 << 32)),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
    }
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    if "LD_LIBRARY_PATH" in os.environ:
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    return environment


def _find(preload: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Where this process finds the packages to preload: the directory of each, and paths to make readable.

    Of a directory that is no site-packages, such as a source tree on PYTHONPATH, only the package itself is readable.
    """
    found, readable = dict[str, str](), []
    for name in dict.fromkeys(name.partition(".")[0] for name in preload):
        spec = find_spec(name)
        if spec is None or spec.origin in (None, "built-in", "frozen"):
            continue
        origin = Path(str(spec.origin)).resolve()
        package = origin.parent if origin.name == "__init__.py" else origin
        found[name] = str(package.parent)
        readable.append(str(package.parent if package.parent.name in ("site-packages", "dist-packages") else package))
    return found, readable
