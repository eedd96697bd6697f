"""The replay worker's main loop: a clean process that owns the GPU context and never imports candidate Python.

Requests arrive on standard input as frames (`wire.py`) and are answered on a private copy of standard output; whatever
libraries print goes to standard error. When standard input closes the process group ends at once. A request that loses the GPU
context is answered, and the process then ends: the parent starts a fresh one for the next.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import traceback
from typing import Literal

from referee.device import wire

# Giving memory back and asking for it again takes longer than checking a cell: only a worker that has nothing to do does it.
IDLE_SECONDS = 1.0

Requests = queue.SimpleQueue[tuple[wire.Message, list[bytes]]]


def _listen(fd: int, requests: Requests) -> None:
    try:
        while True:
            requests.put(wire.receive(wire.blocking_reader(fd)))
    except wire.WireError:
        # The judge is gone; nothing this process could still do is of use to anyone.
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)


def main(device: Literal["cuda", "cpu"]) -> None:
    """Serve requests until standard input closes."""
    answers, incoming = os.dup(1), os.dup(0)
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    requests: Requests = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(incoming, requests), daemon=True).start()

    def progress(text: str, seconds: float, whose: Literal["candidate", "referee"]) -> None:
        wire.send(answers, wire.frame({"progress": text, "seconds": seconds, "whose": whose}))

    # Before anything is asked: a worker that replaces a lost one is ready sooner.
    from referee.device.replay_service import Service, keep_loaded

    service = None
    while True:
        try:
            message, blobs = requests.get(timeout=IDLE_SECONDS if service else None)
        except queue.Empty:
            if service is not None:
                service.rest()
            message, blobs = requests.get()
        try:
            if service is None:
                progress("starting CUDA", 180.0, "referee")
                service = Service(device, progress)
                keep_loaded()
            answer = service.answer(message, blobs)
        except Exception:  # reported to the judge, which decides; this process may be beyond repair
            traceback.print_exc()
            wire.send(answers, wire.frame({"broken": traceback.format_exc(limit=-4), "ends": True}))
            os._exit(1)
        wire.send(answers, wire.frame(answer))
        if answer.get("ends"):
            # A lost context makes orderly shutdown hang or crash, so there is none.
            os._exit(0)


if __name__ == "__main__":
    main("cpu" if sys.argv[1:] == ["cpu"] else "cuda")
