"""The worker of `bench/peers.py` as its parent sees it: messages with a time limit, and its loss."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().with_name("peer_worker.py")
STARTING_SECONDS, EMITTING_SECONDS, ENDING_SECONDS = 120.0, 120.0, 10.0


class WorkerLost(RuntimeError):
    """The worker died or took too long; the message says how."""


class Worker:
    """The process with the GPU. Messages of it are read with a time limit."""

    def __init__(self, command: Sequence[str] = (sys.executable, str(SCRIPT))) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        try:
            self.device = str(self._read(STARTING_SECONDS)["ready"])
        except WorkerLost:
            self.close()
            raise

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _read(self, seconds: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise WorkerLost(f"it took longer than {seconds:.0f} s") from None
        if not line:
            raise WorkerLost(f"its process ended with code {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def messages(self, asked: Mapping[str, Any], seconds: float) -> Iterator[dict[str, Any]]:
        """Every message about a place, up to the last one. Raises WorkerLost."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise WorkerLost("its process ended before") from None
        limit = seconds
        while True:
            found = self._read(limit)
            begun = str(found.get("begun", ""))
            limit = EMITTING_SECONDS if begun.startswith("the text of") else seconds
            yield found
            if "place" in found:
                return

    def close(self) -> None:
        """End the process and those that it started, also where they hang."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._listener.join(ENDING_SECONDS)
        for stream in (self._process.stdin, self._process.stdout):
            # Words for the dead process are lost.
            with suppress(OSError):
                if stream is not None:
                    stream.close()
