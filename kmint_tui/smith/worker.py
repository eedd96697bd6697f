"""The engine's child process: `python -m kmint_tui.smith.worker`, commands on stdin, events on stdout, one JSON a line.

llama.cpp ends the process when something is wrong; that is why it has one of its own. File descriptor 2 is a log file,
descriptor 1 is taken away from C code before anything is loaded. The process ends when its parent does: by a signal
from the kernel where there is one (Linux), and in any case when stdin closes.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO

from kmint_tui.smith.events import Event, Failed, encode
from kmint_tui.smith.prompts import Prompt
from kmint_tui.smith.sampling import Sampling

_PR_SET_PDEATHSIG = 1


class Channel:
    """The pipe to the parent. A parent that is gone ends this process."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def emit(self, event: Event) -> None:
        """Send one event."""
        self.emit_all([event])

    def emit_all(self, events: Sequence[Event]) -> None:
        """Send events in one piece: each piece wakes the parent."""
        try:
            self._stream.write("".join(encode(event) + "\n" for event in events))
            self._stream.flush()
        except (BrokenPipeError, ValueError):
            os._exit(1)


class Commands:
    """Reads commands in a thread, so that a cancel is seen while decoding. Runs are numbered, so that none hits the next."""

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
        """Whether the run under way is to stop."""
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
    """Serve one parent until it closes stdin or says "close". Returns the exit status."""
    _die_with_parent(int(sys.argv[1]))
    channel = Channel(_private_stdout())
    commands = Commands(sys.stdin)

    from kmint_tui.smith import loading
    from kmint_tui.smith.native import NativeError
    from kmint_tui.smith.run import Job, split
    from kmint_tui.smith.template import FENCE, TemplateRefused, render

    order = _order(commands.next())
    try:
        ready = loading.load(order, channel.emit, _log)
    except NativeError as error:
        channel.emit(Failed(error.code, error.reason))  # type: ignore[arg-type]
        return 1
    commands.on_cancel = ready.decoder.abort
    channel.emit(ready.loaded)
    model = ready.model
    while (command := commands.next())["do"] == "draft":
        try:
            prefill = FENCE if command["fence"] else ""
            texts = [
                prompt + prefill
                if isinstance(prompt, str)
                else render(Prompt(**prompt), model.template(), bos=model.bos(), add_bos=model.adds_bos, prefill=prefill)
                for prompt in command["prompts"]
            ]
            shared, tails = split([tuple(model.tokenize(text)) for text in texts])
            job = Job(
                prompt=shared,
                tails=tails,
                drafts=command["drafts"],
                sampling=Sampling(**command["sampling"]),
                seed=command["seed"],
                max_tokens=command["max_tokens"],
                inside=command["fence"],
            )
            ready.decoder.run(job, channel.emit_all, commands.cancelled)
        except TemplateRefused as refused:
            channel.emit(Failed("template", refused.reason))
        except NativeError as error:
            channel.emit(Failed(error.code, error.reason))  # type: ignore[arg-type]
            if error.code == "native":
                return 1
    ready.decoder.close()
    model.close()
    return 0


def _order(command: dict[str, Any]) -> Any:
    from kmint_tui.smith.loading import Order

    path, tuning = Path(command.pop("path")), command.pop("tuning")
    del command["do"]
    return Order(path=path, tuning=Path(tuning) if tuning else None, **command)


def _die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent's thread ends; leave at once when it already has."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _private_stdout() -> TextIO:
    """The pipe to the parent under a number of its own; descriptor 1 goes where 2 goes."""
    private = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(private, "w", encoding="ascii")


def _log(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    # Without the library's clean-up at exit: it waits for threads that may be stuck.
    status = main()
    sys.stderr.flush()
    os._exit(status)
