"""The engine's child process: commands on stdin, events on stdout, one JSON object a line.

It is a separate process because llama.cpp ends the process on an error. File descriptor 2 is a
log file; descriptor 1 leads there too before any C code is loaded. The first command names the
model file; the process then confines itself to that file (`confined.py`). It ends with its parent:
by a signal from the kernel on Linux, and in any case when stdin closes.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO

from kmint_tui.smith.confined import as_choice, confine
from kmint_tui.smith.events import Chat, Event, Failed, encode
from kmint_tui.smith.order import Order
from kmint_tui.smith.sampling import Sampling
from kmint_tui.smith.template import MAX_TEMPLATE

_PR_SET_PDEATHSIG = 1


class Channel:
    """The pipe to the parent. Without a parent this process ends."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def emit(self, event: Event) -> None:
        """Send one event."""
        self.emit_all([event])

    def emit_all(self, events: Sequence[Event]) -> None:
        """Send events in one piece, because each piece wakes the parent."""
        try:
            self._stream.write("".join(encode(event) + "\n" for event in events))
            self._stream.flush()
        except (BrokenPipeError, ValueError):
            os._exit(1)


class Commands:
    """Reads commands in a thread, so that a cancel works during a decode.

    Runs are numbered, so that a cancel never hits the next run.
    """

    def __init__(self, stream: TextIO) -> None:
        self._queue: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._stream = stream
        self._run = 0
        self._cancelled = 0
        self.on_cancel: Callable[[], None] = lambda: None
        threading.Thread(target=self._read, name="commands", daemon=True).start()

    def next(self) -> dict[str, Any]:
        """The next command, in order."""
        command = self._queue.get()
        self._run = command.get("run", 0)
        return command

    def cancelled(self) -> bool:
        """True when the current run must stop."""
        return self._cancelled >= self._run

    def _read(self) -> None:
        for line in self._stream:
            command = json.loads(line)
            if command["do"] == "cancel":
                self._cancelled = command["run"]
                if self.cancelled():
                    self.on_cancel()
            else:
                self._queue.put(command)
        os._exit(0)


def main() -> int:
    """Serve one parent until it closes stdin or sends "close". Returns the exit status."""
    _die_with_parent(int(sys.argv[1]))
    channel = Channel(_private_stdout())
    # No thread exists yet; an earlier one would not be confined.
    first = sys.stdin.readline()
    if not first:
        return 0
    order = _order(json.loads(first))
    confinement = as_choice(confine(order.path))
    commands = Commands(sys.stdin)

    from kmint_tui.smith import loading
    from kmint_tui.smith.native import NativeError
    from kmint_tui.smith.run import DraftJob, split

    try:
        ready = loading.load(order, channel.emit, _log)
    except NativeError as error:
        channel.emit(Failed(error.code, error.reason))  # type: ignore[arg-type]
        return 1
    commands.on_cancel = ready.decoder.abort
    model = ready.model
    channel.emit(Chat(model.template()[: MAX_TEMPLATE + 1], model.bos(), model.adds_bos))
    channel.emit(replace(ready.loaded, choices=(*ready.loaded.choices, confinement)))
    while (command := commands.next())["do"] == "draft":
        try:
            shared, tails = split([tuple(model.tokenize(text)) for text in command["texts"]])
            job = DraftJob(
                prompt=shared,
                tails=tails,
                drafts=command["drafts"],
                only=tuple(command["only"]),
                sampling=Sampling(**command["sampling"]),
                seed=command["seed"],
                max_tokens=command["max_tokens"],
                inside=command["fence"],
            )
            ready.decoder.run(job, channel.emit_all, commands.cancelled)
        except NativeError as error:
            channel.emit(Failed(error.code, error.reason))  # type: ignore[arg-type]
            if error.code == "native":
                return 1
    ready.decoder.close()
    model.close()
    return 0


def _order(command: dict[str, Any]) -> Order:
    path = Path(command.pop("path"))
    del command["do"]
    return Order(path=path, **command)


def _die_with_parent(parent: int) -> None:
    """Let the kernel send SIGKILL when the parent's thread ends; leave at once when it has."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _private_stdout() -> TextIO:
    """The pipe to the parent under a new number; descriptor 1 now leads to the log."""
    private = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(private, "w", encoding="ascii")


def _log(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    # Without the library's clean-up at exit, which waits for threads that may be stuck.
    status = main()
    sys.stderr.flush()
    os._exit(status)
