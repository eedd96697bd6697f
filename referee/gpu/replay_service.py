"""The requests of the replay worker: describe the device, check, tune, race, time, warm baselines.

One instance lives as long as the process. It keeps loaded tasks and compiled baselines. Every
answer is JSON; `ends` in an answer says that the process must be replaced.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any, Literal

import torch

from referee.compiling.binaries import Binary
from referee.gpu import wire
from referee.gpu.environment import describe_device
from referee.gpu.jobs import ReplayJob, cell_from_json, unpack_jobs
from referee.ops.spec import Cell
from referee.ops.task import Task, load
from referee.plans.plan_parse import PlanError
from referee.problem import TaskName
from referee.reference.load import load_reference
from referee.reference.task import load_task
from referee.replaying.driver import CudaError, Driver, Kernel
from referee.replaying.replay import PlanFault, Runner
from referee.replaying.replay_check import (
    FAULTS,
    CellOutcome,
    Host,
    Progress,
    as_fault,
    check_cell,
    out_of_memory,
)
from referee.timing.baselines import Baselines, BaselineStore, load_compilers
from referee.timing.contest import Contest
from referee.timing.measurement import TimingOptions
from referee.timing.nvml import Clocks
from referee.timing.own_kernels import compile_own
from referee.timing.rounds import Flush
from referee.timing.spent import Spent
from referee.timing.timer import Timer
from referee.timing.tune import race, tune
from referee.verdict import CellResult, Rejection, Stage

# Shares of device memory: cached memory that stays, and free memory that must be left for more to
# stay.
KEPT_SHARE, FREE_SHARE = 0.2, 0.25
PARTS = {
    "hello": "other",
    "check": "checking",
    "tune": "tuning",
    "race": "racing",
    "time": "timing",
    "warm": "other",
}
"""The part of the profile to which a request belongs."""


class Service:
    """Answers requests. Construction starts CUDA unless `device` is "cpu".

    `spent` has the time of each part of its work.
    """

    def __init__(self, device: Literal["cuda", "cpu"], progress: Progress) -> None:
        driver = None
        self.spent = Spent()
        if device == "cuda":
            with self.spent.during("starting CUDA"):
                torch.zeros(1, device="cuda")
                driver = Driver()
        self.host = Host(device, driver, progress)
        self._tasks: dict[str, Task] = {}
        self._baselines = BaselineStore(
            lambda text, seconds: progress(text, seconds, "referee"), self._flushing, self.spent
        )
        self._flush: Flush | None = None
        self._ahead = False
        self._environment = describe_device(self.host.driver)
        self._memory = torch.cuda.get_device_properties(0).total_memory if driver else 0

    def answer(self, message: wire.Message, blobs: list[bytes]) -> wire.Message:
        """The answer to one request. A candidate's faults are answers; kmint's mistakes raise."""
        handlers: Mapping[str, Callable[[wire.Message, list[bytes]], wire.Message]] = {
            "hello": self._hello,
            "check": self._check,
            "tune": self._tune,
            "race": self._race,
            "time": self._time,
            "warm": self._warm,
        }
        try:
            with self.spent.during(PARTS[message["do"]]):
                answer = handlers[message["do"]](message, blobs)
        except torch.OutOfMemoryError as error:
            # The error's frames keep memory until this process ends.
            return {"broken": out_of_memory(error), "ends": True}
        # A language model may share this GPU.
        goes_on = self.host.driver and not answer.get("ends")
        if goes_on and torch.cuda.mem_get_info()[0] < FREE_SHARE * self._memory:
            self.rest(KEPT_SHARE)
        return answer

    def rest(self, kept: float = 0.0) -> None:
        """Returns unused memory if more than the share `kept` of the device is cached.

        Call it when no request waits.
        """
        if self.host.driver and torch.cuda.memory_reserved() > kept * self._memory:
            torch.cuda.empty_cache()

    def ahead(self) -> None:
        """Loads the compilers of baselines, once. It takes seconds, in which no request is answered.

        Call it after a first answer, while the judge still traces and compiles a candidate.
        """
        if self.host.driver is None or self._ahead:
            return
        self._ahead = True
        with self.spent.during("loading compilers"):
            load_compilers()
            keep_loaded()

    def _hello(self, message: wire.Message, blobs: list[bytes]) -> wire.Message:
        return {"environment": self._environment}

    def _check(self, message: wire.Message, blobs: list[bytes]) -> wire.Message:
        task, jobs = self._task(message["task"]), self._jobs(message, blobs)
        if isinstance(jobs, Rejection):
            return {"cells": [], "rejection": asdict(jobs), "seconds": {}}
        outcomes: list[CellOutcome] = []
        seconds: dict[str, float] = {}
        ends = False
        for job in jobs:
            started = time.perf_counter()
            outcome, ends = self._one_cell(job, task, message)
            seconds[job.cell.name] = time.perf_counter() - started
            outcomes.append(outcome)
            if ends or (outcome.rejection and job.cell.role != "capability"):
                break
        last = outcomes[-1] if outcomes else None
        rejected = last.rejection if last and last.result.role != "capability" else None
        cells = [asdict(_with_guard(outcome)) for outcome in outcomes]
        short = any(outcome.result.status == "skipped" for outcome in outcomes)
        rejection = asdict(rejected) if rejected else None
        flags = {"ends": ends, "short": short}
        return {"cells": cells, "rejection": rejection, "seconds": seconds, **flags}

    def _one_cell(
        self, job: ReplayJob, task: Task, message: wire.Message
    ) -> tuple[CellOutcome, bool]:
        choice = {int(step): int(config) for step, config in message["choice"].items()}
        try:
            with Loaded(self.host, job) as runner:
                seed, atomics = message["seed"], message["atomics"]
                return check_cell(
                    self.host, runner, task, job.cell, seed, choice=choice, atomics=atomics
                ), False
        except (PlanFault, torch.AcceleratorError) as error:
            lost = as_fault(error)
            result = CellResult(job.cell.name, job.cell.role, "fail", detail=lost.reason)
            why = Rejection("correct", lost.guard, f"at {job.cell.name}: {lost.reason}")
            return CellOutcome(result, why), lost.sticky
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            if job.cell.role != "capability":
                raise
            short = "not enough GPU memory for this cell"
            result = CellResult(job.cell.name, job.cell.role, "skipped", detail=short)
            return CellOutcome(result), False

    def _tune(self, message: wire.Message, blobs: list[bytes]) -> wire.Message:
        jobs = self._jobs(message, blobs)
        if isinstance(jobs, Rejection):
            return {"rejection": asdict(jobs)}
        try:
            with Loaded(self.host, jobs[0]) as runner:
                found = tune(self.host, runner, jobs[0].cell, message["seed"], self._flushing())
        except FAULTS as error:
            return _refused("correct", error)
        return {"rejection": None, **asdict(found)}

    def _race(self, message: wire.Message, blobs: list[bytes]) -> wire.Message:
        jobs = self._jobs(message, blobs)
        if isinstance(jobs, Rejection):
            return {"rejection": asdict(jobs)}
        try:
            with ExitStack() as loaded:
                runners = [loaded.enter_context(Loaded(self.host, job)) for job in jobs]
                found = race(self.host, runners, jobs[0].cell, message["seed"], self._flushing())
        except FAULTS as error:
            return _refused("timing", error)
        return {"rejection": None, "times": found}

    def _time(self, message: wire.Message, blobs: list[bytes]) -> wire.Message:
        task, jobs = self._task(message["task"]), self._jobs(message, blobs)
        if isinstance(jobs, Rejection):
            return {"rejection": asdict(jobs)}
        job, options = jobs[0], TimingOptions(**message["options"])
        baselines = self._ready(task, message, job.cell, graphed=options.show_graphed)
        choice = {int(step): int(config) for step, config in message["choice"].items()}
        try:
            with Loaded(self.host, job) as runner:
                contest = Contest(
                    task=task,
                    cell=job.cell,
                    runner=runner,
                    choice=choice,
                    atomics=message["atomics"],
                    baselines=baselines,
                    seed=message["seed"],
                )
                timer = Timer(self.host, contest, options, self._flushing(), self._clocks())
                found = replace(timer.measure(), environment=self._environment)
        except FAULTS as error:
            return _refused("timing", error)
        return {"rejection": None, "timing": found.to_json()}

    def _warm(self, message: wire.Message, blobs: list[bytes]) -> wire.Message:
        task, cell = self._task(message["task"]), cell_from_json(message["cell"])
        found = self._ready(task, message, cell, graphed=message["graphed"])
        self._flushing()
        try:
            compile_own(task, cell)
        except torch.OutOfMemoryError:
            # Other programs may hold the memory; a verdict compiles missing kernels itself.
            torch.cuda.empty_cache()
        return {"ready": sorted(found.ready), "missing": found.missing, "seconds": found.seconds}

    def _ready(self, task: Task, message: wire.Message, cell: Cell, *, graphed: bool) -> Baselines:
        built = self._baselines.built
        found = self._baselines.get(task, _key(message["task"]), cell, graphed=graphed)
        if self._baselines.built > built:
            keep_loaded()
        return found

    def _task(self, named: Mapping[str, Any]) -> Task:
        asked = TaskName.from_json(named).asked
        if asked is not None:
            return load_task(asked, "gpu")
        if named["op"] not in self._tasks:
            self._tasks[named["op"]] = load(named["op"], "gpu")
        return self._tasks[named["op"]]

    def _jobs(self, message: wire.Message, blobs: list[bytes]) -> list[ReplayJob] | Rejection:
        try:
            return unpack_jobs(message["jobs"], blobs)
        except PlanError as error:
            return Rejection("trace", error.guard, f"the launch plan is not sound: {error}")

    def _flushing(self) -> Flush:
        if self._flush is None:
            self._flush = Flush(torch.cuda.get_device_properties(0).L2_cache_size)
        return self._flush

    def _clocks(self) -> Clocks | str:
        assert self.host.driver is not None
        return Clocks.open(self.host.driver.pci_bus_id())


class Loaded:
    """A job's kernels on the device for the length of a `with`; gives the plan's runner."""

    def __init__(self, host: Host, job: ReplayJob) -> None:
        self._host, self._job = host, job
        self._kernels: list[Kernel] = []

    def __enter__(self) -> Runner:
        loaded: dict[tuple[int, int], tuple[Kernel, Binary]] = {}
        known: dict[tuple[bytes, str, int, int], Kernel] = {}
        for place, binary in self._job.binaries.items():
            what = (binary.image, binary.name, binary.num_warps, binary.shared)
            if what not in known:
                known[what] = self._load(binary)
            loaded[place] = (known[what], binary)
        return Runner(self._job.plan, loaded, self._host.driver)

    def _load(self, binary: Binary) -> Kernel:
        if self._host.driver is None:
            raise PlanFault("kernel_error", "a kernel cannot be loaded without a GPU")
        try:
            kernel = self._host.driver.load(
                binary.image, binary.name, num_warps=binary.num_warps, shared=binary.shared
            )
        except CudaError as error:
            reason = f"kernel {binary.kernel} cannot be loaded: {error}"
            raise PlanFault("kernel_error", reason, sticky=error.sticky) from error
        self._kernels.append(kernel)
        return kernel

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        try:
            for kernel in self._kernels:
                if self._host.driver:
                    self._host.driver.unload(kernel)
        except CudaError:
            # After a lost context nothing can be unloaded, and the first error counts.
            if error is None:
                raise


def keep_loaded() -> None:
    """Excludes loaded objects from garbage collection.

    Scanning a hundred compiled baselines takes half a second at any moment, also while a candidate
    is timed.
    """
    gc.collect()
    gc.freeze()


def _refused(stage: Stage, error: PlanFault | CudaError | torch.AcceleratorError) -> wire.Message:
    lost = as_fault(error)
    return {"rejection": asdict(Rejection(stage, lost.guard, lost.reason)), "ends": lost.sticky}


def _key(named: Mapping[str, Any]) -> str:
    asked = TaskName.from_json(named).asked
    return str(named["op"]) if asked is None else f"{asked}@{load_reference(asked).digest}"


def _with_guard(outcome: CellOutcome) -> CellResult:
    """The result; for a capability with the guard that failed, because it has no rejection."""
    if outcome.rejection is None or outcome.result.role != "capability":
        return outcome.result
    return replace(outcome.result, guard=outcome.rejection.guard)
