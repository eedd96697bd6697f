"""The parent's side of one sandboxed job: its channels, its deadline and how its end is read.

Each job has its own three channels: a pipe for the result, a pipe for everything it prints, and a socket on which the
fork server reports its start and its end. Closing that socket makes the server kill the job, so no path out of
`Job`, not even a KeyboardInterrupt, leaves one running.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from referee.job_frame import HEADER_BYTES, parse_header

LOG_BYTES = 1 << 20
LOG_TAIL_BYTES = 4000
START_SECONDS = 60.0
KILL_SECONDS = 20.0
_CHUNK = 1 << 16

Result = tuple[Any, bytes, str, float, bool]


class ServerGone(Exception):
    """The fork server died. `started`: whether the job had begun, `seconds` ago."""

    def __init__(self, started: bool, seconds: float) -> None:
        super().__init__("the fork server died")
        self.started = started
        self.seconds = seconds


class Job:
    """One job, from the request to the end of its process. Use as a context manager."""

    def __init__(self, control: socket.socket, request: bytes, payload: bytes, fds: Sequence[int]) -> None:
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._report.close()
        while self._open:
            os.close(self._open.pop())

    def watch(self, seconds: float, output_bytes: int) -> Result:
        """Wait for the job's end or its limits. Returns the fields of an Outcome; raises ServerGone."""
        poller = select.poll()
        for fd in (self._result_fd, self._log_fd, self._report.fileno()):
            poller.register(fd, select.POLLIN)
        deadline = time.monotonic() + START_SECONDS
        verdict: tuple[str, str] | None = None
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                if verdict is not None or self._started is None:
                    raise ServerGone(self._started is not None, self._elapsed())
                verdict = self._kill("timeout", f"no result within {seconds:g} s")
                deadline = time.monotonic() + KILL_SECONDS
            for fd, _ in poller.poll(max(0.0, remaining) * 1000):
                if fd == self._report.fileno():
                    message = self._receive()
                    if message.get("started"):
                        self._started = time.monotonic()
                        deadline = self._started + seconds
                        continue
                    return self._finish(message, verdict, output_bytes)
                if not self._drain(fd, output_bytes):
                    poller.unregister(fd)
            if verdict is None:
                verdict = self._limit_reached(output_bytes)
                if verdict is not None:
                    deadline = time.monotonic() + KILL_SECONDS

    def _elapsed(self) -> float:
        return 0.0 if self._started is None else time.monotonic() - self._started

    def _receive(self) -> dict[str, Any]:
        try:
            message = self._report.recv(4096)
        except ConnectionResetError:
            # The kernel reports our unread "kill" before it hands out what the server sent last.
            message = self._report.recv(4096)
        if not message:
            raise ServerGone(self._started is not None, self._elapsed())
        report: dict[str, Any] = json.loads(message)
        return report

    def _kill(self, status: str, detail: str) -> tuple[str, str]:
        try:
            self._report.send(b"kill")
        except OSError:
            # The job has ended by itself: the server's last message waits in the socket.
            return status, detail
        return status, detail

    def _limit_reached(self, output_bytes: int) -> tuple[str, str] | None:
        if self._log_seen > LOG_BYTES:
            return self._kill("flood", f"printed more than {LOG_BYTES} bytes")
        if len(self._result) > HEADER_BYTES + output_bytes:
            return self._kill("flood", f"the result is larger than {output_bytes} bytes")
        header = parse_header(self._result)
        if header is not None and header.size > output_bytes:
            return self._kill("flood", f"the result of {header.size} bytes is larger than {output_bytes} bytes")
        if header is not None and len(self._result) >= HEADER_BYTES + header.size:
            return self._kill("done", "")
        return None

    def _drain(self, fd: int, output_bytes: int) -> bool:
        """Take what one pipe holds, within bounds. False when it has ended."""
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
            elif len(self._result) <= HEADER_BYTES + output_bytes:
                self._result += chunk
        return True

    def _finish(self, end: dict[str, Any], verdict: tuple[str, str] | None, output_bytes: int) -> Result:
        elapsed = self._elapsed()
        for fd in (self._result_fd, self._log_fd):
            self._drain(fd, output_bytes)
        printed = self._log.decode("utf-8", "replace").strip()
        tail = "\n".join(printed.splitlines()[-8:])
        if verdict is None or verdict[0] == "done":
            verdict = self._limit_reached(output_bytes) or verdict
        return (*_conclude(end, verdict, bytes(self._result), tail), elapsed, bool(end.get("outside")) and verdict is None)


def _conclude(end: dict[str, Any], verdict: tuple[str, str] | None, result: bytes, tail: str) -> tuple[str, bytes, str]:
    header = parse_header(result)
    if verdict is not None and verdict[0] != "done":
        return verdict[0], b"", "\n".join(part for part in (verdict[1], tail) if part)
    if header is not None and len(result) >= HEADER_BYTES + header.size:
        data = result[HEADER_BYTES : HEADER_BYTES + header.size]
        if header.status == "ok":
            return "ok", data, ""
        return header.status, b"", "\n".join(part for part in (data.decode("utf-8", "replace"), tail) if part)
    if "failed" in end:
        return "crash", b"", str(end["failed"])
    if end.get("signal"):
        cause = f"killed by {signal.Signals(end['signal']).name}"
        status = "memory" if "bad_alloc" in tail else "crash"
    else:
        cause = f"exit code {end.get('exit')} without a result"
        status = "exited"
    return status, b"", "\n".join(part for part in (cause, tail) if part)


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
