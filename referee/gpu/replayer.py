"""The judge's handle on the GPU: checks, tunes and times launch plans in long-lived replay workers.

There are two workers if the device has enough memory: a separate one replays capability cases at
the same time as the required ones. During a measurement both are otherwise idle. A request that
fails while the other worker is busy (lost context, time, memory) is repeated alone, so that no
candidate pays for another. Importing this module, and `Replayer.available`, load neither torch nor
CUDA.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from referee.case_runs import out_of_time
from referee.gpu import wire
from referee.gpu.jobs import (
    Checked,
    CompiledCandidate,
    ReplayJob,
    guard_reports,
    other_configurations,
    pack_jobs,
    rejection_from_json,
    unreached,
)
from referee.gpu.warm_worker import HostBusy, ReplayerError, WarmWorker
from referee.gpu.worker_process import Device, WorkerLost
from referee.ops.spec import Cell
from referee.plans.autotune import as_first_call_rejection, autotune_first_call
from referee.problem import TaskName
from referee.timing.measurement import (
    BELOW_FLOOR,
    ChosenConfigs,
    Timing,
    TimingOptions,
    timing_from_json,
)
from referee.timing.nvml import count_gpus
from referee.timing.spent import added
from referee.verdict import CellResult, Rejection, Stage

__all__ = ["Checked", "ChosenConfigs", "Replayer", "ReplayerError", "default_cache", "unreached"]

APART_BYTES = 64 << 30
"""Bytes of device memory from which two workers fit: a case of 2^31 elements takes up to a quarter.
"""


def default_cache() -> Path:
    """The folder of compiled baselines; the worker creates it at its first write."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path(os.path.expanduser("~/.cache"))) / "kmint" / "baselines"


class Replayer:
    """Warm replay workers, usable from several threads. Construction starts nothing.

    `apart` replays capability cases in a separate worker; None decides by the device's memory.
    """

    def __init__(
        self, *, device: Device = "cuda", cache: Path | None = None, apart: bool | None = None
    ) -> None:
        self._first, self._earning = (
            WarmWorker(cache or default_cache(), device) for _ in range(2)
        )
        self._apart = apart

    def __enter__(self) -> Replayer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @staticmethod
    def available() -> str | None:
        """None if this machine can replay plans, else one sentence that names the missing part."""
        if find_spec("torch") is None:
            return "torch is not installed"
        if not _torch_has_cuda():
            return "this build of torch has no CUDA support"
        count = count_gpus()
        if isinstance(count, str):
            return count
        return None if count else "the NVIDIA driver is here but sees no GPU"

    @property
    def pid(self) -> int | None:
        """Process id of the worker for timing and required cases; None if it does not run."""
        return self._first.pid

    @property
    def seconds(self) -> float:
        """Seconds that this worker has spent on requests."""
        return self._first.seconds

    @property
    def spent(self) -> dict[str, float]:
        """Seconds by part of both workers' work, and of the callers' wait for them."""
        return added(self._first.spent, self._earning.spent)

    @property
    def started(self) -> int:
        """Number of processes started so far."""
        return self._first.started + self._earning.started

    @property
    def busy(self) -> bool:
        """True while a request is being answered."""
        return self._first.turn.locked() or self._earning.turn.locked()

    def environment(self) -> dict[str, Any]:
        """Device, driver and versions as the worker sees them, and the capabilities' process."""
        found = dict(self._ask({"do": "hello"})["environment"])
        memory = int(found.get("memory_bytes", 0))
        if self._apart is None:
            self._apart = memory >= APART_BYTES
        process = "a separate process" if self._apart else "the same process"
        return found | {"badges": f"{process}: {memory / (1 << 30):.0f} GiB"}

    def expect_capabilities(self) -> None:
        """Starts the separate worker for capability cases, if there is one, to be loaded in time."""
        if self._apart:
            self._earning.start()

    def check(self, prepared: CompiledCandidate, *, seed: int) -> Checked:
        """Replays every test case twice on inputs drawn from `seed`, and compares. Raises
        ReplayerError.

        Required cases come first, up to the first failure. For an autotuned candidate it also
        checks the other configurations at some cases (`configurations`), and the first call at
        every required case (`autotune_first_call`).
        """
        required = [job for job in prepared.jobs if job.cell.role != "capability"]
        capabilities = [job for job in prepared.jobs if job.cell.role == "capability"]
        common = {"do": "check", "seed": seed, **prepared.message()}
        cells, rejection, seconds = self._check_some(common, required)
        if rejection is None:
            rejection = self._check_configurations(common, required, prepared.choice, seed)
        if rejection is None:
            rejection = self._check_first_calls(common, required, prepared.choice)
        if rejection is None:
            earned, spent = self._check_capabilities(common, capabilities)
            cells += earned
            seconds |= spent
        known = {result.name: result for result in cells}
        ordered = tuple(known.get(job.cell.name) or unreached(job.cell) for job in prepared.jobs)
        return Checked(ordered, rejection, guard_reports(rejection, prepared.atomics), seconds)

    def tune(self, prepared: CompiledCandidate, *, seed: int) -> ChosenConfigs | Rejection:
        """Times all configurations, and picks the fastest of each launch. Raises ReplayerError."""
        message = {"do": "tune", "seed": seed, **prepared.message()}
        answer = self._judged(message, [_bench(prepared)], "correct")
        if isinstance(answer, Rejection):
            return answer
        choice = {int(step): int(config) for step, config in answer["choice"].items()}
        return ChosenConfigs(choice, _by_step(answer["times"]), _by_step(answer["refused"]))

    def race(
        self, prepared: Sequence[CompiledCandidate], *, seed: int
    ) -> list[tuple[float, float]] | Rejection:
        """Times several checked candidates for one task against the first, at the timed case.

        Returns (microseconds, time of the first divided by this time) for each; NaN where nothing
        could be measured. Raises ReplayerError.
        """
        jobs = [_bench(one) for one in prepared]
        answer = self._judged({"do": "race", "seed": seed}, jobs, "timing")
        if isinstance(answer, Rejection):
            return answer
        return [(float(us), float(ratio)) for us, ratio in answer["times"]]

    def time(
        self, prepared: CompiledCandidate, *, seed: int, options: TimingOptions | None = None
    ) -> Timing | Rejection:
        """Times the timed case against the baselines, and builds missing baselines first.

        Raises ReplayerError, also for a time below the physical floor, which counts as a measuring
        error.
        """
        chosen = asdict(options or TimingOptions())
        message = {"do": "time", "seed": seed, "options": chosen, **prepared.message()}
        answer = self._judged(message, [_bench(prepared)], "timing")
        if isinstance(answer, Rejection):
            if answer.guard == BELOW_FLOOR:
                raise ReplayerError(answer.reason)
            return answer
        return timing_from_json(answer["timing"])

    def warm(self, task: TaskName, cell: Cell, *, graphed: bool = False) -> dict[str, str]:
        """Builds the baselines of a test case ahead of time, and compiles kernels that timing
        needs.

        Returns the reasons for missing baselines by name.
        """
        named = {"task": asdict(task), "cell": asdict(cell)}
        return dict(self._ask({"do": "warm", "graphed": graphed, **named})["missing"])

    def interrupt(self) -> None:
        """Ends the workers from another thread; their requests raise ReplayerError."""
        for worker in (self._first, self._earning):
            worker.interrupt()

    def close(self) -> None:
        """Ends the workers. The object can be used again."""
        for worker in (self._earning, self._first):
            worker.close()

    def _judged(
        self, message: dict[str, Any], jobs: Sequence[ReplayJob], stage: Stage
    ) -> dict[str, Any] | Rejection:
        """The answer to a request with these jobs, or the rejection of the candidate."""
        packed, blobs = pack_jobs(jobs)
        try:
            answer = self._ask({**message, "jobs": packed}, blobs)
        except WorkerLost as lost:
            return _timed_out(lost, stage)
        return rejection_from_json(answer["rejection"]) or answer

    def _check_some(
        self, common: Mapping[str, Any], jobs: Sequence[ReplayJob]
    ) -> tuple[list[CellResult], Rejection | None, dict[str, float]]:
        if not jobs:
            return [], None, {}
        packed, blobs = pack_jobs(jobs)
        try:
            answer = self._ask({**common, "jobs": packed}, blobs)
        except WorkerLost as lost:
            rejection = _timed_out(lost, "correct")
            # The text of a step contains the name of its test case, which is a single word.
            words, cells = lost.step.text.split(), [job.cell for job in jobs]
            hung = next((cell for cell in cells if cell.name in words), cells[0])
            failed = CellResult(hung.name, hung.role, "fail", detail=rejection.reason)
            return [failed], rejection, {}
        results = [CellResult(**cell) for cell in answer["cells"]]
        return results, rejection_from_json(answer["rejection"]), dict(answer["seconds"])

    def _check_capabilities(
        self, common: Mapping[str, Any], jobs: Sequence[ReplayJob]
    ) -> tuple[list[CellResult], dict[str, float]]:
        """Checks each case separately: one may cost the context, and the remaining ones are then
        repeated. A busy machine leaves them without a result, which costs the kernel nothing.
        """
        cells, seconds, waiting = list[CellResult](), dict[str, float](), list(jobs)
        while waiting:
            try:
                found, _, spent = self._check_some(common, waiting)
            except HostBusy as busy:
                return [*cells, *(out_of_time(job.cell, str(busy)) for job in waiting)], seconds
            cells += found
            seconds |= spent
            answered = {result.name for result in found}
            # A plan that breaks a rule has no result.
            waiting = [job for job in waiting if job.cell.name not in answered] if answered else []
        return cells, seconds

    def _check_configurations(
        self,
        common: Mapping[str, Any],
        jobs: Sequence[ReplayJob],
        choice: Mapping[int, int],
        seed: int,
    ) -> Rejection | None:
        for which, others in other_configurations(jobs, choice, seed):
            _, rejection, _ = self._check_some({**common, "choice": {}}, others)
            # Triton skips a configuration that cannot be launched.
            if rejection and rejection.guard != "kernel_error":
                when = f"with configuration {which}, which Triton may pick"
                return replace(rejection, reason=f"{when}: {rejection.reason}")
        return None

    def _check_first_calls(
        self, common: Mapping[str, Any], jobs: Sequence[ReplayJob], choice: Mapping[int, int]
    ) -> Rejection | None:
        first_calls = [made for job in jobs if (made := _first_call(job, choice))]
        if not first_calls:
            return None
        _, rejection, _ = self._check_some({**common, "choice": {}}, first_calls)
        return as_first_call_rejection(rejection) if rejection else None

    def _ask(self, message: dict[str, Any], blobs: Sequence[bytes] = ()) -> dict[str, Any]:
        """Makes one request. Raises WorkerLost if a kernel ran too long, else ReplayerError."""
        earns = message["do"] == "check" and all(
            job["cell"]["role"] == "capability" for job in message["jobs"]
        )
        who, other = self._first, self._earning
        if earns and self._apart:
            who, other = other, who
        interrupts = who.interrupts
        # Packed before the lock is taken, so that the worker does not wait for it.
        framed = wire.frame(message, blobs)
        if message["do"] == "check":
            with who.in_turn():
                before, beside = other.requests, other.asking
                try:
                    answer, lost = who.ask(framed, interrupts), None
                except WorkerLost as error:
                    answer, lost = {}, error
            failed = lost is not None or answer.get("ends") or answer.get("short")
            if not failed or (not beside and other.requests == before):
                return _unless_broken(answer, lost)
        with ExitStack() as alone:
            # A fixed order of locks prevents a deadlock.
            for worker in (self._earning, self._first):
                alone.enter_context(worker.in_turn())
            return _unless_broken(who.ask(framed, interrupts))


def _unless_broken(answer: dict[str, Any], lost: WorkerLost | None = None) -> dict[str, Any]:
    if lost is not None:
        raise lost
    if "broken" in answer:
        raise ReplayerError(answer["broken"])
    return answer


def _torch_has_cuda() -> bool:
    """Reads torch's version file, because importing torch takes seconds."""
    spec = find_spec("torch")
    file = Path(spec.origin).with_name("version.py") if spec and spec.origin else None
    text = file.read_text(encoding="utf-8") if file and file.is_file() else ""
    return re.search(r"^cuda\b[^=\n]*=\s*['\"]", text, re.MULTILINE) is not None


def _first_call(job: ReplayJob, choice: Mapping[int, int]) -> ReplayJob | None:
    usable: dict[int, list[int]] = {}
    for step, config in sorted(job.binaries):
        usable.setdefault(step, []).append(config)
    first = autotune_first_call(job.plan, usable, choice)
    if first is None:
        return None
    binaries = {(step, 0): job.binaries[origin] for step, origin in first.origin.items()}
    return ReplayJob(job.cell, first.plan, binaries)


def _bench(prepared: CompiledCandidate) -> ReplayJob:
    if prepared.bench is None:
        raise ReplayerError("this task has no cell to time")
    return prepared.bench


def _by_step(found: Mapping[str, Mapping[str, Any]]) -> dict[int, dict[int, Any]]:
    return {
        int(step): {int(config): value for config, value in tried.items()}
        for step, tried in found.items()
    }


def _timed_out(lost: WorkerLost, stage: Stage) -> Rejection:
    reason = f"the kernel did not end in time while {lost.step.text}"
    return Rejection(stage, "timeout", f"{reason}: look for a loop that never ends")
