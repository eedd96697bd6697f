"""The engine's process, and the thread that reads its events.

What the process says comes as events, in order; the last one, a `Failed`, says how it ended. Closing waits until it is gone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import IO

from kmint_tui.smith.events import Event, Failed, decode

_CRASHES = {signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE}
_CLOSING_SECONDS = 5.0
_LOG_TAIL = 4096


class Child:
    """The process and the thread that reads its events.

    The same thread starts the process: the kernel sends a parent-death signal when the *thread* that forked ends.
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
        """Whether the process is still there and being listened to. One that was killed a moment ago is not."""
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return ended is None and self._reader.is_alive()

    @property
    def crashed(self) -> bool:
        """Whether the process ended itself by a fault or an abort."""
        return self._process.returncode is not None and -self._process.returncode in _CRASHES

    @property
    def signal_name(self) -> str:
        """The signal that ended the process, or "" when none did."""
        code = self._process.returncode
        return _signal_name(-code) if code is not None and code < 0 else ""

    def send(self, command: dict[str, object]) -> None:
        """Write a command; one that a dead process cannot read is dropped, for its end is reported anyway."""
        with self._writing:
            try:
                _pipe(self._process.stdin).write(json.dumps(command) + "\n")
                _pipe(self._process.stdin).flush()
            except (OSError, ValueError):
                return

    def pause(self) -> None:
        """Stop the process and wait until the kernel says that it has stopped, or is gone."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGSTOP)
            try:
                found = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                return  # It ended, and the reader has already taken its status.
            self.paused = found is not None and found.si_code == os.CLD_STOPPED

    def resume(self) -> None:
        """Let a stopped process go on."""
        if self.paused:
            self.paused = False
            self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End the process: politely, then by force. Waits until it is gone."""
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
        for line in _pipe(process.stdout):
            try:
                event = decode(line)
                self.events.put(replace(event, log=str(self._log)) if isinstance(event, Failed) else event)
            except (ValueError, RecursionError) as error:
                odd = str(error)
                process.kill()
                break
        _pipe(process.stdout).close()
        code = process.wait()
        if odd:
            self.events.put(Failed("protocol", f"the engine sent something else than events: {odd}", str(self._log)))
        else:
            self.events.put(self._ending(code))

    def _spawn(self) -> subprocess.Popen[str]:
        # Threads that wait for one another spin some microseconds before they sleep. libgomp's default is milliseconds: a
        # thread whose partner was descheduled then burns its time slice, and two threads were seen to be 170 times slower
        # than one. Not spinning at all costs a factor of six on an idle machine, this much 1 %.
        spin = {} if {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & set(os.environ) else {"GOMP_SPINCOUNT": "10000"}
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        with self._log.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "kmint_tui.smith.worker", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                # What is no text is no event either, and is reported like everything that is none.
                errors="replace",
                # Ctrl-C at the terminal is for the application; an assertion must not start a debugger.
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": path, "GGML_NO_BACKTRACE": "1", **spin},
            )

    def _ending(self, code: int) -> Failed:
        if code >= 0:
            return Failed("native", f"the engine ended with status {code}{self._last_words()}", str(self._log))
        name = _signal_name(-code)
        if -code in _CRASHES:
            return Failed("native", f"llama.cpp crashed ({name}){self._last_words()}", str(self._log))
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


def _signal_name(number: int) -> str:
    """SIGKILL, for example; most real-time signals have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _pipe(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise ValueError("the process was started without this pipe")
    return stream
