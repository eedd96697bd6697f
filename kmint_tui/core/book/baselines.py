"""Builds the baselines of many cases side by side, before anything is timed.

A baseline takes a compiler many seconds, and the GPU works in few of them. So several processes
compile at once, and their results lie on the disk for the process that times. Builders disturb each other
on one GPU. So their choices of configurations are forgotten, and the process that times chooses
anew, alone, among compiled kernels. The builders end before the first measurement. A mark in the
cache remembers a built baseline; where a mark is wrong, the process that times builds it.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kmint_tui.core.baseline_choices import disturbed
from kmint_tui.core.book.planning import Timed
from kmint_tui.documents import compact
from referee.asked_shape import COPIES
from referee.gpu.replayer import Replayer, ReplayerError
from referee.plans.dtypes import ITEMSIZE

if TYPE_CHECKING:
    from referee.ops import Cell

CORES_LEFT, LEAST_BYTES = 2, 4 << 30


class Builders(Protocol):
    """Builds baselines before they are needed."""

    def build(self, wanted: Iterable[Timed]) -> None: ...

    def stop(self) -> None: ...


class BaselineBuilders:
    """Builders for one kind of GPU; `cache` is the folder of the referee's baselines.

    `memory` is the GPU's in bytes, which the builders share. `where` names the GPU and the versions
    that a built baseline is for.
    """

    def __init__(self, cache: Path, memory: int, where: str) -> None:
        self._cache, self._where = cache, where
        cores = len(os.sched_getaffinity(0))
        self.most = max(1, min(cores - CORES_LEFT, memory // LEAST_BYTES))
        self._memory = threading.Condition()
        self._whole = self._free = memory
        self._lock = threading.Lock()
        self._stopped = False
        self._open: list[Replayer] = []

    def build(self, wanted: Iterable[Timed]) -> None:
        """Build all baselines that no earlier build has. One that fails is left to the process that
        times.
        """
        waiting = (timed for timed in wanted if not self._mark(timed).exists())
        with disturbed(self._cache), ThreadPoolExecutor(self.most) as pool:
            builders = [pool.submit(self._builder, waiting) for _ in range(self.most)]
        for builder in builders:
            builder.result()

    def stop(self) -> None:
        """End the builders; another thread may be in `build`."""
        self._stopped = True
        for replayer in self._open:
            replayer.interrupt()

    def _builder(self, waiting: Iterator[Timed]) -> None:
        replayer: Replayer | None = None
        try:
            while not self._stopped:
                with self._lock:
                    timed = next(waiting, None)
                if timed is None:
                    return
                if replayer is None:
                    replayer = Replayer(cache=self._cache, apart=False)
                    self._open.append(replayer)
                with suppress(ReplayerError), self._share(bytes_of(timed.case)):
                    replayer.warm(timed.task, timed.case)
                    self._remember(timed)
        finally:
            if replayer is not None:
                replayer.close()

    def _mark(self, timed: Timed) -> Path:
        content = compact([asdict(timed.task), asdict(timed.case), self._where])
        return self._cache / "built" / hashlib.sha256(content.encode()).hexdigest()[:32]

    def _remember(self, timed: Timed) -> None:
        mark = self._mark(timed)
        with suppress(OSError):
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()

    @contextmanager
    def _share(self, wanted: int) -> Iterator[None]:
        """Hold a share of the memory; a case that takes more than all of it is built alone."""
        with self._memory:
            wanted = min(max(wanted, LEAST_BYTES), self._whole)
            self._memory.wait_for(lambda: self._free >= wanted)
            self._free -= wanted
        try:
            yield
        finally:
            with self._memory:
                self._free += wanted
                self._memory.notify_all()


def bytes_of(case: Cell) -> int:
    """Upper bound of the GPU memory that the baselines of a case take."""
    return COPIES * sum(
        prod(spec.shape) * ITEMSIZE[spec.dtype] for spec in (*case.inputs, *case.outputs)
    )
