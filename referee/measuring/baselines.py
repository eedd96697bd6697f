"""What a candidate is measured against: eager PyTorch and torch.compile, built by the referee in its own process.

Compiled callables are kept warm per (op, cell); inductor's artefacts persist in the cache directory the worker was started
with. Each callable gets its own code object, so that dynamo's recompile limit can never turn one silently into eager. A
baseline that cannot be built, or whose own answer is wrong, is reported as missing with the reason and never replaced.

What inductor's autotuner picks varies: built four times, layernorm with relu took from 36 to 52 us. A kernel must not win because
of an unlucky pick, so the autotuned baseline is built several times, each with a cache directory of its own, and the fastest counts.
Limits: what it measured of matrix products is kept by the process and used for every pick.
"""

from __future__ import annotations

import itertools
import os
import time
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from referee.answers.compare import compare
from referee.measuring.measurement import AUTOTUNE, COMPILE, EAGER, GRAPHED
from referee.measuring.rounds import Entry, Flush, run_block
from referee.ops.spec import Cell
from referee.ops.task import Task
from referee.replaying.replay_check import first_line

Callee = Callable[..., Any]
Progress = Callable[[str, float], None]

COMPILE_SECONDS = 300.0
KEPT = 2048  # more than the catalogue has: an evicted one would be built again in the middle of a session
MODES: dict[str, str | None] = {COMPILE: None, AUTOTUNE: "max-autotune-no-cudagraphs", GRAPHED: "max-autotune"}
PICKS = {AUTOTUNE: 3}
PICK_ROUNDS = 12
CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_numbers = itertools.count()


@dataclass(frozen=True)
class Baselines:
    """The callables by name, why the others are missing, and how many seconds each took to build."""

    ready: dict[str, Callee]
    missing: dict[str, str]
    seconds: dict[str, float]


class BaselineStore:
    """Builds baselines on first use and keeps the most recent ones. `flush` gives what empties the device's cache.

    `built` counts those that were built so far.
    """

    def __init__(self, progress: Progress, flush: Callable[[], Flush]) -> None:
        self._progress, self._flush = progress, flush
        self._kept: OrderedDict[tuple[str, Cell, str], Callee | str] = OrderedDict()
        self._seconds: dict[tuple[str, Cell, str], float] = {}
        self.built = 0

    def get(self, task: Task, key: str, cell: Cell, *, graphed: bool = False) -> Baselines:
        """Eager and the compiled baselines of `task` at `cell`, checked against the oracle; `key` names the task."""
        names = (EAGER, COMPILE, AUTOTUNE, *((GRAPHED,) if graphed else ()))
        ready: dict[str, Callee] = {}
        missing: dict[str, str] = {}
        for name in names:
            found = self._one(task, key, cell, name)
            if isinstance(found, str):
                missing[name] = found
            else:
                ready[name] = found
        return Baselines(ready, missing, {name: self._seconds[key, cell, name] for name in names})

    def _one(self, task: Task, key: str, cell: Cell, name: str) -> Callee | str:
        slot = (key, cell, name)
        if slot not in self._kept:
            start = time.perf_counter()
            self.built += 1
            try:
                self._kept[slot] = self._fastest(task, cell, name)
            except torch.OutOfMemoryError as error:
                # Others may have held the memory; the next verdict tries again.
                torch.cuda.empty_cache()
                return _failure(error)
            finally:
                self._seconds[slot] = time.perf_counter() - start
            while len(self._kept) > KEPT:
                oldest, _ = self._kept.popitem(last=False)
                del self._seconds[oldest]
        self._kept.move_to_end(slot)
        return self._kept[slot]

    def _fastest(self, task: Task, cell: Cell, name: str) -> Callee | str:
        """The fastest of the builds, or why the first of them failed. Raises torch.OutOfMemoryError."""
        inputs = task.inputs(cell, 0, "cuda")
        ready: list[Callee] = []
        failures: list[str] = []
        for number in range(PICKS.get(name, 1)):
            self._progress(f"building the baseline {name}", COMPILE_SECONDS)
            with picks_of(number):
                found = _build(task, cell, name, inputs)
            if isinstance(found, str):
                failures.append(found)
            else:
                ready.append(found)
        if not ready:
            return failures[0]
        return ready[0] if len(ready) == 1 else ready[_quickest(ready, inputs, self._flush())]


@contextmanager
def picks_of(number: int) -> Iterator[None]:
    """Inductor's caches on disk for the build of this number: what is built within picks its configurations for itself."""
    kept = os.environ.get(CACHE_VARIABLE)
    if number and kept:
        os.environ[CACHE_VARIABLE] = f"{kept}-{number}"
    try:
        yield
    finally:
        if number and kept:
            os.environ[CACHE_VARIABLE] = kept


def _quickest(callees: Sequence[Callee], inputs: Sequence[Tensor], flush: Flush) -> int:
    """The index of the smallest median device time, caches cold."""

    def calling(callee: Callee) -> Callable[[int], object]:
        def call(_: int) -> None:
            callee(*inputs)

        return call

    entries = [Entry(str(number), calling(callee)) for number, callee in enumerate(callees)]
    block = run_block(entries, PICK_ROUNDS, flush, np.random.default_rng(0), during=lambda: None)
    times = {int(name): float(np.nanmedian(found)) for name, found in block.times.items() if np.isfinite(found).any()}
    return min(times, key=times.__getitem__, default=0)


def _build(task: Task, cell: Cell, name: str, inputs: Sequence[Tensor]) -> Callee | str:
    try:
        callee = (task.timed or task.eager) if name == EAGER else _compiled(task, MODES[name])
        for _ in range(3):
            made = callee(*inputs)
        torch.cuda.synchronize()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever inductor raises, the report must name it
        torch.cuda.synchronize()
        # Inductor wraps what its autotuner ran into.
        if torch.OutOfMemoryError.__name__ in f"{type(error).__name__}: {error}":
            raise torch.OutOfMemoryError(first_line(error)) from error
        return _failure(error)
    result = compare(task, cell, inputs, outputs_of(made))
    if result.status != "pass":
        return f"its answer differs from float64: {result.detail or result.status}"
    return callee


def _failure(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


def _compiled(task: Task, mode: str | None) -> Callee:
    # User references may break the graph, as they would for their author; the catalogue's never do.
    whole = task.op.origin != "user"
    compiled: Callee = torch.compile(_own_code(task.timed or task.eager), fullgraph=whole, dynamic=False, mode=mode)
    return compiled


def _own_code(reference: Callee) -> Callee:
    def baseline(*inputs: Tensor) -> Any:
        return reference(*inputs)

    code = baseline.__code__.replace(co_name=f"baseline_{next(_numbers)}")
    return types.FunctionType(code, baseline.__globals__, code.co_name, None, baseline.__closure__)


def outputs_of(made: Any) -> tuple[Tensor, ...]:
    """What a reference returned, always as a tuple."""
    return tuple(made) if isinstance(made, tuple | list) else (made,)
