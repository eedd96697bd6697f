"""The process of a replay worker: clean start, requests with deadlines, end by process group.

The worker announces each step and its maximum number of seconds in a progress frame; a missed
deadline ends it. The seconds leave out the time in which the worker waited for a processor. A
worker that waits for its GPU sleeps, so its time counts, and a kernel that hangs is found. The worker
ends when its standard input closes, so it cannot outlive the judge. A parent-death signal would
only follow the thread that started it. This side loads neither CUDA nor torch.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Literal

from referee import python_child
from referee.gpu import wire
from referee.sandbox.clock import Clock, TimeUp, threads_of
from referee.versions import switches, triton_version, unusual_switches

START_SECONDS = 180.0
END_SECONDS = 10.0
PIPE_BYTES = 1 << 20
KEPT_VARIABLES = (
    "PATH HOME USER LOGNAME LANG LC_ALL TMPDIR LD_LIBRARY_PATH VIRTUAL_ENV CC CXX "
    "CUDA_HOME CUDA_PATH CUDA_VISIBLE_DEVICES "
    "CUDA_DEVICE_ORDER NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES "
    "TRITON_LIBCUDA_PATH XDG_CACHE_HOME"
).split()

Device = Literal["cuda", "cpu"]


@dataclass(frozen=True)
class WorkerStep:
    """The worker's step, and whose code runs: the candidate's kernels or kmint ("referee")."""

    text: str
    whose: Literal["candidate", "referee"]


class WorkerLost(RuntimeError):
    """The worker has ended: `how` is "timeout", "crash", or "starved" by a busy machine. `step` is its
    last step. `detail` is its last output, or the words for a busy machine.
    """

    def __init__(self, how: TimeUp | Literal["crash"], step: WorkerStep, detail: str) -> None:
        super().__init__(
            f"the replay worker was lost ({how}) while {step.text}"
            + (f": {detail}" if detail else "")
        )
        self.how, self.step, self.detail = how, step, detail


class WorkerProcess:
    """One running worker: `python -m MODULE ARGUMENTS`. Not thread-safe, except for `kill`."""

    def __init__(self, cache: Path, module: str, *arguments: str) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            python_child.module_command(module, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=worker_environment(cache),
            cwd=python_child.WORKING_FOLDER,
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._write, self._read = self._process.stdin, self._process.stdout
        _hold_more(self._write.fileno())
        self.step = WorkerStep("starting", "referee")
        self._allow(START_SECONDS)

    @property
    def pid(self) -> int:
        """The worker's process id, which is also its process group."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False once the process has ended."""
        return self._process.poll() is None

    def request(self, framed: bytes, *, seconds: float) -> wire.Message:
        """Sends one framed request and waits for its answer.

        Raises WorkerLost, after which this object is unusable.
        """
        self._allow(seconds)
        # The previous request's step must not appear in this one's error.
        self.step = WorkerStep("starting on the request", "referee")
        read = wire.timed_reader(self._read.fileno(), self._left)
        try:
            wire.send(self._write.fileno(), framed, self._left)
            while True:
                answer, _ = wire.receive(read)
                if "progress" not in answer:
                    return answer
                self.step = WorkerStep(
                    str(answer["progress"]),
                    "candidate" if answer["whose"] == "candidate" else "referee",
                )
                self._allow(float(answer["seconds"]))
        except wire.WireTimeout:
            starved = self._clock.look() == "starved"
            self.kill()
            if starved:
                raise WorkerLost("starved", self.step, self._clock.words()) from None
            raise WorkerLost("timeout", self.step, "") from None
        except wire.WireError as error:
            self.kill()
            raise WorkerLost("crash", self.step, self._last_words(str(error))) from None

    def _allow(self, seconds: float) -> None:
        self._clock = Clock(seconds, partial(threads_of, self._process.pid))

    def _left(self) -> float | None:
        """Seconds until the next look at the clock; None when its time is up."""
        return None if self._clock.look() else self._clock.pause()

    def kill(self) -> None:
        """Ends the worker and all its children at once."""
        if self._process.returncode is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            # The driver needs time to stop a running kernel; the process itself runs no more code.
            pass

    def close(self) -> None:
        """Lets the worker end, or kills it if it does not; then closes the pipes."""
        self._write.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        self.kill()
        self._read.close()
        self._log.close()

    def _last_words(self, fallback: str) -> str:
        code = self._process.returncode
        ended = "" if code is None else (f"signal {-code}" if code < 0 else f"exit code {code}")
        size = os.fstat(self._log.fileno()).st_size
        text = (
            os.pread(self._log.fileno(), 2000, max(0, size - 2000))
            .decode("utf-8", "replace")
            .strip()
        )
        return "; ".join(
            part for part in (ended, text.splitlines()[-1] if text else fallback) if part
        )


def _hold_more(pipe: int) -> None:
    """Enlarges a pipe to take most requests in one write."""
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except OSError:
        # One user's limit for pipes is reached; a request then takes several writes.
        pass


def _inductor_folder(given: dict[str, str]) -> str:
    """Inductor's cache keys lack Triton's switches, so every unusual set has its own folder."""
    unusual = unusual_switches(given)
    if not unusual:
        return "inductor"
    text = ",".join(f"{name}={value}" for name, value in sorted(unusual.items()))
    return f"inductor-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def worker_environment(cache: Path) -> dict[str, str]:
    """The environment of a replay worker: variables of torch and a compiler, and their caches."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    triton = triton_version()
    given = switches(triton) if triton is not None else {}
    return (
        kept
        | given
        | {
            "TORCHINDUCTOR_CACHE_DIR": str(cache / _inductor_folder(given)),
            "TRITON_CACHE_DIR": str(cache / "triton"),
            # One process: nothing that could be left behind, and the artefacts are cached anyway.
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }
    )
