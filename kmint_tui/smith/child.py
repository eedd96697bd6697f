"""The engine's process, and the thread that reads its events.

Events arrive in order; the last one is a `Failed` with the reason for the process's end. `close`
waits until the process is gone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import IO

from kmint_tui.smith.events import Event, Failed, decode
from referee import python_child

_CRASHES = {signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE}
_CLOSING_SECONDS = 5.0
"""Seconds between the command to close and SIGKILL."""

_LOG_TAIL = 4096
"""Bytes at the log's end that hold its last line."""

# The longest event ends a draft: its text, and the number of each of its tokens.
_LINE_CHARACTERS = 16 << 20
_VARIABLES = (
    *(
        "PATH",
        "HOME",
        "TMPDIR",
        "LANG",
        "TZ",
        "LC_",
        "LD_",
        "OMP_",
        "GOMP_",
        "KMP_",
        "OPENBLAS_",
        "MKL_",
        "MALLOC_",
    ),
    *(
        "GGML_",
        "LLAMA_",
        "CUDA",
        "NVIDIA_",
        "NV_",
        "HIP_",
        "ROCR_",
        "ROCM_",
        "HSA_",
        "GPU_",
        "VK_",
        "SYCL_",
        "ONEAPI_",
        "ZE_",
    ),
    "KMINT_SMITH_",
)


class Child:
    """The process and the thread that reads its events. Raises OSError when it cannot start.

    The same thread starts the process, because the kernel sends a parent-death signal when the
    *thread* that forked ends.
    """

    def __init__(self, log: Path) -> None:
        self.events: SimpleQueue[Event] = SimpleQueue()
        self._log = log
        self._started: SimpleQueue[subprocess.Popen[str] | OSError] = SimpleQueue()
        self._writing = threading.Lock()
        self.paused = False
        self._reader = threading.Thread(target=self._serve, name="smith", daemon=True)
        self._reader.start()
        started = self._started.get()
        if isinstance(started, OSError):
            raise started
        self._process = started

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the process runs and its reader listens; False at once after a kill."""
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return ended is None and self._reader.is_alive()

    @property
    def crashed(self) -> bool:
        """True when a fault or an abort ended the process."""
        return self._process.returncode is not None and -self._process.returncode in _CRASHES

    @property
    def signal_name(self) -> str:
        """The signal that ended the process, or ""."""
        code = self._process.returncode
        return _signal_name(-code) if code is not None and code < 0 else ""

    def send(self, command: dict[str, object]) -> None:
        """Write a command. A dead process drops it, because its end is reported anyway."""
        with self._writing:
            try:
                _pipe(self._process.stdin).write(json.dumps(command) + "\n")
                _pipe(self._process.stdin).flush()
            except (OSError, ValueError):
                return

    def pause(self) -> None:
        """Stop the process and wait until the kernel reports that it has stopped or ended."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGSTOP)
            try:
                found = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                return  # It ended, and the reader has already taken its status.
            self.paused = found is not None and found.si_code == os.CLD_STOPPED

    def resume(self) -> None:
        """Continue a stopped process."""
        if self.paused:
            self.paused = False
            self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End the process: by a command, then by force. Waits until it is gone."""
        self.resume()
        self.send({"do": "close"})
        with self._writing:
            try:
                _pipe(self._process.stdin).close()
            except OSError:
                pass
        try:
            self._process.wait(_CLOSING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reader.join()

    def _serve(self) -> None:
        try:
            process = self._spawn()
        except OSError as error:
            self._started.put(error)
            return
        self._started.put(process)
        odd = ""
        out = _pipe(process.stdout)
        while line := out.readline(_LINE_CHARACTERS):
            try:
                event = decode(line)
                self.events.put(
                    replace(event, log=str(self._log)) if isinstance(event, Failed) else event
                )
            except (ValueError, RecursionError) as error:
                odd = str(error)
                process.kill()
                break
        out.close()
        code = process.wait()
        if odd:
            self.events.put(
                Failed("protocol", f"the engine sent invalid events: {odd}", str(self._log))
            )
        else:
            self.events.put(self._ending(code))

    def _spawn(self) -> subprocess.Popen[str]:
        # Threads that wait for one another spin some microseconds before they sleep. libgomp's
        # default is milliseconds: a thread whose partner was descheduled then burns its time slice.
        # In a measurement two such threads were 170 times slower than one. No spinning at all costs
        # a factor of six on an idle machine; this number costs 1 %.
        spin = (
            {}
            if {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & set(os.environ)
            else {"GOMP_SPINCOUNT": "10000"}
        )
        with self._log.open("wb") as log:
            return subprocess.Popen(
                python_child.module_command("kmint_tui.smith.worker", str(os.getpid())),
                cwd=python_child.WORKING_FOLDER,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                # Bytes that are not UTF-8 make an invalid event, which is reported as such.
                errors="replace",
                # Ctrl-C at the terminal is for the application; an assertion must not start a
                # debugger.
                start_new_session=True,
                env={**_environment(), "GGML_NO_BACKTRACE": "1", **spin},
            )

    def _ending(self, code: int) -> Failed:
        if code >= 0:
            return Failed(
                "native", f"the engine ended with status {code}{self._last_words()}", str(self._log)
            )
        name = _signal_name(-code)
        if -code in _CRASHES:
            return Failed(
                "native", f"llama.cpp crashed ({name}){self._last_words()}", str(self._log)
            )
        hint = "; the system kills processes when memory runs out" if name == "SIGKILL" else ""
        return Failed("killed", f"the engine was killed ({name}){hint}", str(self._log))

    def _last_words(self) -> str:
        """The last line of the log, where an assertion is printed."""
        try:
            with self._log.open("rb") as file:
                file.seek(max(0, self._log.stat().st_size - _LOG_TAIL))
                lines = file.read().decode("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return f": {lines[-1][:300]}" if lines else ""


def _environment() -> dict[str, str]:
    """The variables for llama.cpp, its threads and a GPU's driver; no token or password passes."""
    return {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}


def _signal_name(number: int) -> str:
    """The signal's name, such as SIGKILL; most real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _pipe(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise ValueError("the process was started without this pipe")
    return stream
