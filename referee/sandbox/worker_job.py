"""The forked child: enters the sandbox, calls the entry, sends the frame, ends."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import tempfile
import time
import traceback
from typing import NoReturn

from referee.sandbox.job_frame import DETAIL_BYTES, FrameStatus, build
from referee.sandbox.layers import Sandbox, SandboxError
from referee.sandbox.limits import TIME_UP, Limits, cpu_seconds

# Triton reads its home at import, before a job has one; the variable overrides it.
_SCRATCH_VARIABLES = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TRITON_HOME")


def run_job(
    sandbox: Sandbox,
    entry: str,
    limits: Limits,
    result: int,
    log: int,
    payload: int,
    fds: list[int],
) -> NoReturn:
    """Never returns, because none of the server's code may run in the child."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        # Without a handler the first process of a pid namespace would not receive the signal.
        signal.signal(signal.SIGXCPU, lambda number, frame: _end_if_used_up(limits))
        _redirect(log)
        content = _read(payload)
        try:
            scratch = sandbox.enter(limits, [result, *fds])
        except SandboxError as error:
            _send(result, build("crash", str(error).encode()))
            os._exit(1)
        for name in _SCRATCH_VARIABLES:
            os.environ[name] = scratch
        # The server's value is its own directory, where a job may not write.
        tempfile.tempdir = scratch
        os.chdir(scratch)
        _send(result, _call(entry, content, scratch, tuple(fds)))
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _end_if_used_up(given: Limits) -> None:
    """Linux counts whole ticks, too many on a busy machine, and signals again each second."""
    if time.process_time() >= cpu_seconds(given):
        os._exit(TIME_UP)


def _call(entry: str, payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    status: FrameStatus = "crash"
    try:
        module, _, function = entry.partition(":")
        return build(
            "ok", getattr(importlib.import_module(module), function)(payload, scratch, fds)
        )
    except MemoryError:
        status, detail = "memory", "out of memory"
    except SystemExit:
        raise
    except BaseException as error:
        detail = "".join(traceback.format_exception(error))
        if isinstance(error, RuntimeError) and "can't allocate memory" in str(error):
            status = "memory"
    return build(status, detail.encode("utf-8", "replace")[-DETAIL_BYTES:])


def _redirect(log: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", buffering=1, closefd=False, errors="replace")
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="replace")


def _read(fd: int) -> bytes:
    with open(fd, "rb") as payload:
        return payload.read()


def _send(fd: int, frame: bytes) -> None:
    view = memoryview(frame)
    while view:
        view = view[os.write(fd, view) :]
