"""Owning the replay worker's process: start it clean, talk to it with deadlines, kill it by its process group.

The worker says before each step what it is doing and how many seconds that may take (a progress frame); missing that
deadline ends it. The worker itself ends when its standard input closes, so it cannot outlive the judge: a parent-death
signal would do the same only for the thread that started it. Nothing of CUDA or torch is loaded on this side.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from referee.device import wire

START_SECONDS = 180.0
END_SECONDS = 10.0
PIPE_BYTES = 1 << 20
KEPT_VARIABLES = (
    "PATH HOME USER LOGNAME LANG LC_ALL TMPDIR LD_LIBRARY_PATH VIRTUAL_ENV CC CXX CUDA_HOME CUDA_PATH CUDA_VISIBLE_DEVICES "
    "CUDA_DEVICE_ORDER NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES TRITON_LIBCUDA_PATH TRITON_PTXAS_PATH XDG_CACHE_HOME"
).split()

Device = Literal["cuda", "cpu"]


@dataclass(frozen=True)
class Step:
    """What the worker was doing: its words, and whether the candidate's kernels were running ("candidate") or our code."""

    text: str
    whose: Literal["candidate", "referee"]


class WorkerLost(RuntimeError):
    """The worker is gone. `how` is "timeout" or "crash", `step` what it was doing, `detail` its last words."""

    def __init__(self, how: Literal["timeout", "crash"], step: Step, detail: str) -> None:
        super().__init__(f"the replay worker was lost ({how}) while {step.text}" + (f": {detail}" if detail else ""))
        self.how, self.step, self.detail = how, step, detail


class WorkerProcess:
    """One running worker: `python -m MODULE ARGUMENTS`. Not thread-safe, except for `kill`."""

    def __init__(self, cache: Path, module: str, *arguments: str) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=_environment(cache),
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._write, self._read = self._process.stdin, self._process.stdout
        _hold_more(self._write.fileno())
        self.step = Step("starting", "referee")
        self._deadline = time.monotonic() + START_SECONDS

    @property
    def pid(self) -> int:
        """The worker's process id, which is also its process group."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False once the process has ended."""
        return self._process.poll() is None

    def request(self, framed: bytes, *, seconds: float) -> wire.Message:
        """Send one request, a frame, and wait for its answer. Raises WorkerLost, after which this object is of no further use."""
        self._deadline = time.monotonic() + seconds
        # What the last request did is no part of this one.
        self.step = Step("starting on the request", "referee")
        read = wire.deadline_reader(self._read.fileno(), lambda: self._deadline)
        try:
            wire.send(self._write.fileno(), framed, lambda: self._deadline)
            while True:
                answer, _ = wire.receive(read)
                if "progress" not in answer:
                    return answer
                self.step = Step(str(answer["progress"]), "candidate" if answer["whose"] == "candidate" else "referee")
                self._deadline = time.monotonic() + float(answer["seconds"])
        except wire.WireTimeout:
            self.kill()
            raise WorkerLost("timeout", self.step, "") from None
        except wire.WireError as error:
            self.kill()
            raise WorkerLost("crash", self.step, self._last_words(str(error))) from None

    def kill(self) -> None:
        """End the worker and everything it started, at once."""
        if self._process.returncode is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            # The driver takes its time to stop a running kernel; the process cannot run any more code of its own.
            pass

    def close(self) -> None:
        """Let the worker end by itself, or kill it when it does not; then release the pipes."""
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
        text = os.pread(self._log.fileno(), 2000, max(0, size - 2000)).decode("utf-8", "replace").strip()
        return "; ".join(part for part in (ended, text.splitlines()[-1] if text else fallback) if part)


def _hold_more(pipe: int) -> None:
    """Have a pipe take most requests at once: between two writes another thread of the judge's may run for milliseconds."""
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except OSError:
        # Beyond what one user may have; it then takes several writes.
        pass


def _environment(cache: Path) -> dict[str, str]:
    """Only what torch and a compiler need, plus where they may keep their caches."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    # An installed package is importable anyway; a checkout is not, because -P keeps the working directory out. Torch and Triton
    # must be the judge's, wherever it found them.
    root = Path(__file__).resolve().parent.parent
    paths = [] if root.name in ("site-packages", "dist-packages") else [str(root)]
    if os.environ.get("PYTHONPATH"):
        paths.append(os.environ["PYTHONPATH"])
    if paths:
        kept["PYTHONPATH"] = os.pathsep.join(paths)
    return kept | {
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        # One process: nothing that could be left behind, and the artefacts are cached anyway.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
