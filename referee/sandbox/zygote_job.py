"""The parent's side of one sandboxed job: its channels, its time and the reading of its end.

Each job has three channels: a pipe for the result, a pipe for its output, and a socket. The fork
server reports start and end on the socket. Closing that socket makes the server kill the job. So no
path out of `Job`, not even a KeyboardInterrupt, leaves a job running.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from referee.concurrency import CancelToken
from referee.sandbox.clock import Clock, Reading, pid_of, threads_of
from referee.sandbox.job_frame import DETAIL_BYTES, HEADER_BYTES, parse_header
from referee.sandbox.limits import TIME_UP

Status = Literal["ok", "crash", "timeout", "memory", "flood", "exited", "starved"]


@dataclass(frozen=True)
class Outcome:
    """The end of a job. `data` is the entry's result if `status` is "ok", else empty.

    "crash": a signal killed it, or the entry raised. "timeout": its wall-clock or processor time
    was up. "starved": a busy machine kept it from its time, so its end says nothing of it. "exited":
    it ended without a result. "flood": the result or the output was too large.
    `killed_outside`: another cause than the job and its limits ended it, so it may run again.
    `cancelled`: the caller ended it; its status is "timeout".
    `detail` may quote the job's output; it holds no control characters except line ends and tabs.
    """

    status: Status
    data: bytes
    detail: str
    seconds: float
    killed_outside: bool = False
    cancelled: bool = False


LOG_BYTES = 1 << 20
LOG_TAIL_BYTES = 4000
LOG_LINES = 8
START_SECONDS = 60.0
KILL_SECONDS = 20.0
_CHUNK = 1 << 16


@dataclass(frozen=True)
class _Ordered:
    """The parent's decision to end a job, with a reason unless the job's result explains it."""

    status: Status
    reason: str


_CANCELLED = _Ordered("timeout", "stopped")


class JobLost(RuntimeError):
    """A job ended, or gave a malformed answer, for a reason outside the candidate."""


class MachineBusy(JobLost):
    """A busy machine kept a job from its time; the message says so, and names the remedy."""


class ServerGone(Exception):
    """The fork server died. `started`: whether the job had begun, `seconds` ago."""

    def __init__(self, started: bool, seconds: float) -> None:
        super().__init__("the fork server died")
        self.started = started
        self.seconds = seconds


class Job:
    """One job, from the request to the end of its process. Use it as a context manager."""

    def __init__(
        self,
        control: socket.socket,
        request: bytes,
        payload: bytes,
        fds: Sequence[int],
        server: int,
    ) -> None:
        self._server = server
        self._pid: int | None = None
        self._started: float | None = None
        self._open: set[int] = set()
        self._result = bytearray()
        self._log = bytearray()
        self._log_seen = 0
        self._report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given: list[int] = []
        try:
            self._result_fd = self._pipe(given)
            self._log_fd = self._pipe(given)
            given.append(_memory_file(payload))
            socket.send_fds(control, [request], [theirs.fileno(), *given, *fds])
        except BaseException as error:
            self.__exit__(None, None, None)
            if isinstance(error, ConnectionError | TimeoutError) or control.fileno() == -1:
                raise ServerGone(False, 0.0) from None
            raise
        finally:
            theirs.close()
            for fd in given:
                os.close(fd)

    def _pipe(self, given: list[int]) -> int:
        read, write = os.pipe()
        given.append(write)
        self._open.add(read)
        os.set_blocking(read, False)
        return read

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *error: object) -> None:
        self._report.close()
        while self._open:
            os.close(self._open.pop())

    def watch(
        self, seconds: float, output_bytes: int, cancel: CancelToken | None = None
    ) -> Outcome:
        """Waits for the job's end, its limits (`seconds` from its start), or a readable `cancel`.

        Raises ServerGone.
        """
        poller = select.poll()
        for fd in (
            self._result_fd,
            self._log_fd,
            self._report.fileno(),
            *([] if cancel is None else [cancel.fileno()]),
        ):
            poller.register(fd, select.POLLIN)
        clock = Clock(START_SECONDS, self._server_threads)
        ordered: _Ordered | None = None
        while True:
            for fd, _ in poller.poll(clock.pause() * 1000):
                if fd == self._report.fileno():
                    message = self._receive()
                    if message.get("started"):
                        self._started = time.monotonic()
                        clock = Clock(seconds, self._threads)
                    elif "process" not in message:
                        return self._finish(message, ordered, output_bytes)
                elif cancel is not None and fd == cancel.fileno():
                    poller.unregister(fd)
                    ordered = ordered or _CANCELLED
                    clock = self._kill()
                elif not self._drain(fd, output_bytes):
                    poller.unregister(fd)
            if ordered is None:
                ordered = self._limit_reached(output_bytes)
                if ordered is not None:
                    clock = self._kill()
            # Only now: what the job has sent counts, however late this process reads it.
            up = clock.look()
            if up is None:
                continue
            if ordered is None and self._started is not None:
                late = f"no result within {seconds:g} s"
                ordered = _Ordered(up, late if up == "timeout" else clock.words())
                clock = self._kill()
            elif up == "timeout":
                raise ServerGone(self._started is not None, self._elapsed())
            else:
                return Outcome("starved", b"", clock.words(), self._elapsed())

    def _server_threads(self) -> Reading:
        return threads_of(self._server)

    def _threads(self) -> Reading:
        return threads_of(self._pid or self._server)

    def _elapsed(self) -> float:
        return 0.0 if self._started is None else time.monotonic() - self._started

    def _receive(self) -> dict[str, Any]:
        try:
            message, given, _, _ = socket.recv_fds(self._report, 4096, 1)
        except ConnectionResetError:
            # The kernel reports kmint's unread "kill" before the server's last message.
            message, given, _, _ = socket.recv_fds(self._report, 4096, 1)
        for fd in given:
            self._pid = pid_of(fd)
            os.close(fd)
        if not message:
            raise ServerGone(self._started is not None, self._elapsed())
        report: dict[str, Any] = json.loads(message)
        return report

    def _kill(self) -> Clock:
        """Makes the server kill the job, which may have ended; returns the clock for that."""
        with contextlib.suppress(OSError):
            self._report.send(b"kill")
        return Clock(KILL_SECONDS, self._server_threads)

    def _limit_reached(self, output_bytes: int) -> _Ordered | None:
        if self._log_seen > LOG_BYTES:
            return _Ordered("flood", f"printed more than {LOG_BYTES} bytes")
        header = parse_header(self._result)
        allowed = output_bytes if header is None or header.status == "ok" else DETAIL_BYTES
        size = max(len(self._result) - HEADER_BYTES, 0 if header is None else header.size)
        if size > allowed:
            return _Ordered(
                "flood", f"the result of at least {size} bytes is larger than {allowed} bytes"
            )
        if header is not None and len(self._result) >= HEADER_BYTES + header.size:
            return _Ordered(header.status, "")
        return None

    def _drain(self, fd: int, output_bytes: int) -> bool:
        """Reads the pipe's present content, within bounds. False if the pipe has ended."""
        for _ in range(64):
            try:
                chunk = os.read(fd, _CHUNK)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            if fd == self._log_fd:
                self._log_seen += len(chunk)
                self._log = (self._log + chunk)[-LOG_TAIL_BYTES:]
            elif len(self._result) <= HEADER_BYTES + max(output_bytes, DETAIL_BYTES):
                self._result += chunk
        return True

    def _finish(self, end: dict[str, Any], ordered: _Ordered | None, output_bytes: int) -> Outcome:
        elapsed = self._elapsed()
        for fd in (self._result_fd, self._log_fd):
            self._drain(fd, output_bytes)
        if ordered is None:
            ordered = self._limit_reached(output_bytes)
        data = bytes(self._result[HEADER_BYTES:])
        printed = self._log.decode("utf-8", "replace").splitlines()[-LOG_LINES:]
        if ordered is None:
            ordered = _own_end(end, printed)
            return Outcome(
                ordered.status,
                b"",
                _text(ordered.reason, *printed),
                elapsed,
                bool(end.get("outside")),
            )
        if ordered.status == "ok":
            return Outcome("ok", data[: self._size()], "", elapsed)
        explanation = ordered.reason or data[: self._size()].decode("utf-8", "replace")
        return Outcome(
            ordered.status,
            b"",
            _text(explanation, *printed),
            elapsed,
            cancelled=ordered is _CANCELLED,
        )

    def _size(self) -> int:
        header = parse_header(self._result)
        return 0 if header is None else header.size


def _own_end(end: dict[str, Any], printed: Sequence[str]) -> _Ordered:
    """The description of a job that ended without a result and without an order."""
    if "failed" in end:
        return _Ordered("crash", str(end["failed"]))
    if (
        end.get("exit") == TIME_UP
        or end.get("signal") == signal.SIGXCPU
        or end.get("outside") is False
    ):
        return _Ordered("timeout", "used up its processor time")
    if "signal" not in end:
        return _Ordered("exited", f"exit code {end.get('exit')} without a result")
    out_of_memory = any("bad_alloc" in line for line in printed)
    return _Ordered(
        "memory" if out_of_memory else "crash", f"killed by {_signal_name(end['signal'])}"
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _text(*lines: str) -> str:
    """Joined lines with control characters made harmless, because a terminal may show them."""
    text = "\n".join(line for line in lines if line).strip()
    return "".join(
        character if character.isprintable() or character in "\n\t" else "\ufffd"
        for character in text
    )


def _memory_file(content: bytes) -> int:
    fd = os.memfd_create("payload")
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
    except BaseException:
        os.close(fd)
        raise
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
