"""The process of one device of this host: reads jobs from stdin, one JSON object a line, and writes
answers to stdout.

    python -m kmint_tui.core.farm.local_worker THREADS

It ends when stdin closes, so it cannot outlive the command that started it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kmint_tui.core.farm.job import MOST_BYTES, Job
from kmint_tui.core.farm.work import Workbench
from kmint_tui.documents import compact, parse_json
from kmint_tui.typed import made

COUNT_SECONDS = 0.1


class Line:
    """The way back to the driver. Several threads may say something."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "wb")
        self._lock = threading.Lock()

    def say(self, content: dict[str, Any]) -> None:
        """Send one message; a driver that is gone reads nothing."""
        text = compact(content).encode("utf-8", "backslashreplace") + b"\n"
        with self._lock:
            try:
                self._file.write(text)
                self._file.flush()
            except OSError:
                os._exit(0)


def serve(threads: int) -> None:
    """Do jobs until stdin closes."""
    # What a library prints must not mix with the answers.
    line = Line(os.dup(1))
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    bench = Workbench()
    with ThreadPoolExecutor(threads) as pool:
        for text in sys.stdin.buffer:
            message = parse_json(text, most_bytes=MOST_BYTES)
            pool.submit(_do, bench, line, message)
        bench.interrupt()
        bench.close()
        os._exit(0)


def _do(bench: Workbench, line: Line, message: dict[str, Any]) -> None:
    number, told = message["id"], 0.0

    def count(done: int, total: int) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= COUNT_SECONDS or done == total:
            told = now
            line.say({"id": number, "cases": [done, total]})

    job = made(Job, message["job"], "the job")
    found = bench.do(job, lambda step: line.say({"id": number, "doing": step}), count)
    line.say({"id": number, "answer": found, "spent": bench.spent})


if __name__ == "__main__":
    from kmint_tui import paths

    paths.settle()
    serve(int(sys.argv[1]))
