"""The main loop of the replay worker: a clean process that owns the GPU context.

It never imports candidate Python. Requests arrive on standard input as frames (`wire`). Answers go
to a private copy of standard output, prints of libraries to standard error. When standard input
closes, the process group ends at once. A request that loses the GPU context is answered, and then
the process ends; the parent starts a fresh one.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
import traceback
from typing import Literal

from referee.gpu import wire

# Seconds without a request before the worker returns memory; returning and allocating it again
# takes longer than a check.
IDLE_SECONDS = 1.0

Requests = queue.SimpleQueue[tuple[wire.Message, list[bytes]]]


def _listen(fd: int, requests: Requests) -> None:
    try:
        while True:
            requests.put(wire.receive(wire.blocking_reader(fd)))
    except wire.WireError:
        # The judge has ended, so no answer matters any more.
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)


def main(device: Literal["cuda", "cpu"]) -> None:
    """Serves requests until standard input closes."""
    answers, incoming = os.dup(1), os.dup(0)
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    requests: Requests = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(incoming, requests), daemon=True).start()

    def progress(text: str, seconds: float, whose: Literal["candidate", "referee"]) -> None:
        wire.send(answers, wire.frame({"progress": text, "seconds": seconds, "whose": whose}))

    began = time.perf_counter()
    # Imported before the first request, so that a replacement worker is ready sooner.
    import torch

    from referee.gpu.replay_service import Service, keep_loaded

    service, loading = None, time.perf_counter() - began
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
                torch.set_grad_enabled(False)
                service = Service(device, progress)
                service.spent.seconds["loading torch"] = loading
                keep_loaded()
            answer = service.answer(message, blobs)
        except Exception:  # reported to the judge, which decides; this process may be beyond repair
            traceback.print_exc()
            wire.send(answers, wire.frame({"broken": traceback.format_exc(limit=-4), "ends": True}))
            os._exit(1)
        wire.send(answers, wire.frame({**answer, "spent": service.spent.seconds}))
        if answer.get("ends"):
            # A lost context makes an orderly shutdown hang or crash.
            os._exit(0)
        if message["do"] == "hello":
            # A judge greets the worker that times, not the one for capability cases.
            service.ahead()


if __name__ == "__main__":
    main("cpu" if sys.argv[1:] == ["cpu"] else "cuda")
