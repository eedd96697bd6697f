"""The baselines of a candidate: eager PyTorch and torch.compile, built by the referee in its
process.

Compiled callables stay warm per (operation, test case). Inductor's artefacts persist in the
worker's cache directory. Each callable has a separate code object, so that dynamo's recompile limit
never silently turns one into eager. A baseline that cannot be built, or whose answer is wrong, is
reported as missing with the reason and never replaced.

The choices of inductor's autotuner vary: layernorm with relu, built four times, took 36 to 52 us. A
kernel must not win by an unlucky choice. So the autotuner measures with kmint's clock
(`tuner_clock`), the autotuned baseline is built several times with separate cache directories, and
the fastest counts. A later process takes the stored choices (`kept_choices`). Limits: the process
keeps its measurements of matrix products and uses them for every build.

The names of a baseline's kernels depend on PyTorch's version and on other packages. They are read
once, when a baseline is built. The profiler is off during timed calls.
"""

from __future__ import annotations

import itertools
import os
import time
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from referee.answers.compare import compare
from referee.ops.spec import Cell
from referee.ops.task import Task
from referee.ops.torch_compat import as_tuple
from referee.replaying.replay_check import first_line
from referee.timing.kept_choices import keep_choices
from referee.timing.measurement import AUTOTUNE, COMPILE, EAGER, GRAPHED
from referee.timing.rounds import Entry, Flush, run_block, usable_medians
from referee.timing.spent import Spent
from referee.timing.tuner_clock import device_clock, tune_by

Callee = Callable[..., Any]
Progress = Callable[[str, float], None]

COMPILE_SECONDS = 300.0
KEPT = 2048
"""Maximum number of kept baselines; the catalogue has fewer, so a session never rebuilds one."""
MODES: dict[str, str | None] = {
    COMPILE: None,
    AUTOTUNE: "max-autotune-no-cudagraphs",
    GRAPHED: "max-autotune",
}
PICKS = {AUTOTUNE: 3}
PICK_ROUNDS = 12
CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_numbers = itertools.count()


@dataclass(frozen=True)
class Baselines:
    """The callables by name, reasons for missing ones, build times in seconds, kernels."""

    ready: dict[str, Callee]
    missing: dict[str, str]
    seconds: dict[str, float]
    kernels: dict[str, tuple[str, ...]] = field(default_factory=dict)


class BaselineStore:
    """Builds baselines on first use and keeps the most recent ones.

    `flush` gives the object that empties the device's cache. `built` counts builds. Their seconds
    go to `spent`.
    """

    def __init__(
        self, progress: Progress, flush: Callable[[], Flush], spent: Spent | None = None
    ) -> None:
        self._progress, self._flush = progress, flush
        self._clock = device_clock(flush)
        self._spent = spent or Spent()
        self._kept: OrderedDict[tuple[str, Cell, str], Callee | str] = OrderedDict()
        self._seconds: dict[tuple[str, Cell, str], float] = {}
        self._kernels: dict[tuple[str, Cell, str], tuple[str, ...]] = {}
        self.built = 0

    def get(self, task: Task, key: str, cell: Cell, *, graphed: bool = False) -> Baselines:
        """Eager and the compiled baselines of the task named `key`, checked against the oracle."""
        names = (EAGER, COMPILE, AUTOTUNE, *((GRAPHED,) if graphed else ()))
        ready: dict[str, Callee] = {}
        missing: dict[str, str] = {}
        for name in names:
            found = self._one(task, key, cell, name)
            if isinstance(found, str):
                missing[name] = found
            else:
                ready[name] = found
        kernels = {name: self._kernels[key, cell, name] for name in ready}
        return Baselines(
            ready, missing, {name: self._seconds[key, cell, name] for name in names}, kernels
        )

    def _one(self, task: Task, key: str, cell: Cell, name: str) -> Callee | str:
        slot = (key, cell, name)
        if slot not in self._kept:
            start = time.perf_counter()
            self.built += 1
            try:
                found = self._fastest(task, cell, name)
                self._kernels[slot] = ()
                if not isinstance(found, str):
                    with self._spent.during("naming baselines' kernels"):
                        self._kernels[slot] = kernels_of(found, task.inputs(cell, 0, "cuda"))
                self._kept[slot] = found
            except torch.OutOfMemoryError as error:
                # Other programs may have held the memory; the next verdict tries again.
                torch.cuda.empty_cache()
                return _failure(error)
            finally:
                self._seconds[slot] = time.perf_counter() - start
            while len(self._kept) > KEPT:
                oldest, _ = self._kept.popitem(last=False)
                del self._seconds[oldest], self._kernels[oldest]
        self._kept.move_to_end(slot)
        return self._kept[slot]

    def _fastest(self, task: Task, cell: Cell, name: str) -> Callee | str:
        """The fastest build, or why the first failed. Raises torch.OutOfMemoryError."""
        inputs = task.inputs(cell, 0, "cuda")
        ready: list[Callee] = []
        failures: list[str] = []
        if name in PICKS:
            tune_by(self._clock)
        for number in range(PICKS.get(name, 1)):
            self._progress(f"building the baseline {name}", COMPILE_SECONDS)
            with picks_of(number), self._spent.during(f"building {name}"):
                found = _build(task, cell, name, inputs)
            if isinstance(found, str):
                failures.append(found)
            else:
                ready.append(found)
        if not ready:
            return failures[0]
        if len(ready) == 1:
            return ready[0]
        with self._spent.during("choosing baselines"):
            return ready[_quickest(ready, inputs, self._flush())]


@contextmanager
def picks_of(number: int) -> Iterator[None]:
    """Separate caches on disk for the build of this number, which then chooses anew.

    The names are new, because older folders hold choices by another clock.
    """
    kept = os.environ.get(CACHE_VARIABLE)
    if kept:
        os.environ[CACHE_VARIABLE] = f"{kept}-pick{number}"
    try:
        yield
    finally:
        if kept:
            os.environ[CACHE_VARIABLE] = kept


def _quickest(callees: Sequence[Callee], inputs: Sequence[Tensor], flush: Flush) -> int:
    """The index of the smallest median device time, with cold caches."""

    def calling(callee: Callee) -> Callable[[int], object]:
        def call(_: int) -> None:
            callee(*inputs)

        return call

    entries = [Entry(str(number), calling(callee)) for number, callee in enumerate(callees)]
    block = run_block(entries, PICK_ROUNDS, flush, np.random.default_rng(0))
    times = usable_medians(block)
    return min(times, key=times.__getitem__, default=0)


def _build(task: Task, cell: Cell, name: str, inputs: Sequence[Tensor]) -> Callee | str:
    task = task.at(cell)
    try:
        callee = (task.timed or task.eager) if name == EAGER else compiled(task, MODES[name])
        for _ in range(3):
            made = callee(*inputs)
        torch.cuda.synchronize()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever inductor raises, the report must name it
        torch.cuda.synchronize()
        # Inductor wraps errors of its autotuner.
        if torch.OutOfMemoryError.__name__ in f"{type(error).__name__}: {error}":
            raise torch.OutOfMemoryError(first_line(error)) from error
        return _failure(error)
    result = compare(task, cell, inputs, as_tuple(made))
    if result.status != "pass":
        return f"its answer differs from float64: {result.detail or result.status}"
    return callee


def _failure(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


def compiled(task: Task, mode: str | None) -> Callee:
    """The task's own code under `torch.compile` in this mode, with a separate code object."""
    # User references may break the graph, as they would for their author; the catalogue's never do.
    whole = not task.op.is_function
    keep_choices()
    made: Callee = torch.compile(
        _own_code(task.timed or task.eager), fullgraph=whole, dynamic=False, mode=mode
    )
    return made


def _own_code(reference: Callee) -> Callee:
    def baseline(*inputs: Tensor) -> Any:
        return reference(*inputs)

    code = baseline.__code__.replace(co_name=f"baseline_{next(_numbers)}")
    return types.FunctionType(code, baseline.__globals__, code.co_name, None, baseline.__closure__)


def load_compilers() -> None:
    """Load Inductor, Triton and the profiler before the first baseline needs them.

    It compiles one small function. A failure is left to the first baseline, which reports it.
    """
    try:
        words = torch.zeros(64, device="cuda")
        keep_choices()
        torch.compile(_own_code(torch.neg), dynamic=False)(words)
        kernels_of(torch.neg, [words])
    except Exception:
        return


MOST_KERNELS = 16
LONGEST_NAME = 160
_NO_KERNELS = ("Memcpy", "Memset")


def kernels_of(callee: Callable[..., Any], inputs: Sequence[Tensor]) -> tuple[str, ...]:
    """The names of one call's kernels, each once and in order, limited to a record's size.

    Empty if the profiler fails, which costs no verdict.
    """
    try:
        # Without acc_events the profiler warns, and a warning may be an error here.
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as seen:
            callee(*inputs)
            torch.cuda.synchronize()
        events = [event.name for event in seen.events() or () if event.device_type.name == "CUDA"]
    except torch.OutOfMemoryError:
        raise
    except Exception:
        return ()
    return kernel_names(events)


def kernel_names(names: Iterable[str]) -> tuple[str, ...]:
    """The shortened names of the kernels among a device's events."""
    kernels = dict.fromkeys(
        name[:LONGEST_NAME] for name in names if not name.startswith(_NO_KERNELS)
    )
    return tuple(kernels)[:MOST_KERNELS]
