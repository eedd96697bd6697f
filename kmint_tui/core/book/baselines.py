"""Builds the baselines of many cases side by side, before anything is timed.

A baseline takes a compiler many seconds, of which the GPU works a few. So several processes compile
at once, and their results lie on the disk for the process that times. Builders disturb each other
on one GPU. So their choices of configurations are forgotten, and the process that times chooses
anew, alone, among compiled kernels. The builders end before the first measurement.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol

from kmint_tui.core.book.planning import Timed
from referee.gpu.replayer import Replayer, ReplayerError
from referee.problem import Problem

CHOICES = "*.best_config"
"""Inductor's files with the configuration that its autotuner chose for a kernel."""
CORES_LEFT, LEAST_BYTES = 2, 4 << 30


class Builders(Protocol):
    """Builds baselines before they are needed."""

    def build(self, wanted: Sequence[Timed]) -> None: ...

    def stop(self) -> None: ...


class BaselineBuilders:
    """Builders for one kind of GPU; `cache` is the folder of the referee's baselines.

    `memory` is the GPU's in bytes.
    """

    def __init__(self, cache: Path, memory: int) -> None:
        self._cache = cache
        cores = len(os.sched_getaffinity(0))
        self._stopped = False
        self._open: list[Replayer] = []
        self.most = max(1, min(cores - CORES_LEFT, memory // LEAST_BYTES))

    def build(self, wanted: Sequence[Timed]) -> None:
        """Build all baselines. One that fails is left to the process that times."""
        waiting: SimpleQueue[Timed] = SimpleQueue()
        for timed in wanted:
            waiting.put(timed)
        began = time.time()
        count = min(self.most, len(wanted))
        with ThreadPoolExecutor(max(1, count)) as pool:
            for _ in range(count):
                pool.submit(self._builder, waiting)
        forget_choices(self._cache, began)

    def stop(self) -> None:
        """End the builders; another thread may be in `build`."""
        self._stopped = True
        for replayer in self._open:
            replayer.interrupt()

    def _builder(self, waiting: SimpleQueue[Timed]) -> None:
        with Replayer(cache=self._cache, apart=False) as replayer:
            self._open.append(replayer)
            while not self._stopped:
                try:
                    problem = Problem(waiting.get_nowait().task)
                except Empty:
                    return
                cell = problem.bench()
                if problem.name is not None and cell is not None:
                    with suppress(ReplayerError):
                        replayer.warm(problem.name, cell)


def forget_choices(cache: Path, began: float) -> int:
    """Remove the autotuner's choices that were made since `began`; returns their number."""
    gone = 0
    for file in cache.rglob(CHOICES):
        with suppress(OSError):
            if file.stat().st_mtime >= began:
                file.unlink()
                gone += 1
    return gone
