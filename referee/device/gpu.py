"""The judge's handle on the GPU: check, tune and time launch plans in replay workers that outlive candidates.

Two workers, where the device has the memory: cells that only earn badges are replayed by one of their own, beside those that must pass.
What is measured is measured while neither does anything else. What fails beside the other worker, by losing its context, its time or
its memory, is asked again alone, so that no candidate pays for another. Importing this, and `Replayer.available`, load neither torch
nor CUDA.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from referee.device import wire
from referee.device.configurations import other_configurations
from referee.device.gpu_worker import Device, WorkerLost
from referee.device.jobs import CellJob, Prepared, TaskName, pack_jobs, rejection_from_json, result_from_json
from referee.device.warm_worker import ReplayerError, WarmWorker
from referee.measuring.clocks import count_gpus
from referee.measuring.measurement import BELOW_FLOOR, Timing, TimingOptions, timing_from_json
from referee.ops.spec import Cell
from referee.plans.rehearsal import blamed, rehearsal
from referee.verdict import CellResult, Check, Rejection, Stage

__all__ = ["Checked", "Frozen", "Replayer", "ReplayerError", "default_cache", "unreached"]

APART_BYTES = 64 << 30
"""A device with as much memory holds what two workers need at a time: a cell of 2^31 elements takes up to a quarter of it."""
CHECKS = {
    "output_contract": "outputs have the operation's dtype, shape and own memory",
    "wrong_answer": "answers agree with float64",
    "guard_band": "nothing was written outside the buffers",
    "input_mutated": "inputs are bit for bit unchanged",
    "not_deterministic": "a second run with other poison and addresses gave the same bits",
}


@dataclass(frozen=True)
class Checked:
    """Results by cell in the order asked, the rejection if a required cell failed, what every guard reports, seconds a cell."""

    cells: tuple[CellResult, ...]
    rejection: Rejection | None
    checks: tuple[Check, ...]
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Frozen:
    """The configuration picked for each autotuned launch (by step number), and microseconds of all that were tried."""

    choice: dict[int, int]
    times: dict[int, dict[int, float]]
    refused: dict[int, dict[int, str]]


def default_cache() -> Path:
    """Where compiled baselines are kept between runs; created by the worker when it first writes there."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kmint" / "baselines"


class Replayer:
    """Warm replay workers. Construction starts nothing. Usable from several threads.

    `apart` has cells that only earn badges replayed by a worker of their own; None where the device has the memory for it.
    """

    def __init__(self, *, device: Device = "cuda", cache: Path | None = None, apart: bool | None = None) -> None:
        self._first, self._earning = (WarmWorker(cache or default_cache(), device) for _ in range(2))
        self._apart = apart

    def __enter__(self) -> Replayer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @staticmethod
    def available() -> str | None:
        """None when plans can be replayed on this machine, else one sentence that says what is missing."""
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
        """Process id of the worker that times, and that checks what must pass; None when it does not run."""
        return self._first.pid

    @property
    def seconds(self) -> float:
        """How long that worker took for requests, so far."""
        return self._first.seconds

    @property
    def started(self) -> int:
        """How many processes were started so far."""
        return self._first.started + self._earning.started

    @property
    def busy(self) -> bool:
        """True while a request is being answered."""
        return self._first.turn.locked() or self._earning.turn.locked()

    def environment(self) -> dict[str, Any]:
        """Device, driver and versions, as the worker sees them, and who replays the cells that only earn badges."""
        found = dict(self._ask({"do": "hello"})["environment"])
        memory = int(found.get("memory_bytes", 0))
        if self._apart is None:
            self._apart = memory >= APART_BYTES
        return found | {"badges": f"{'a process of their own' if self._apart else 'the same process'}: {memory / (1 << 30):.0f} GiB"}

    def expect_badges(self) -> None:
        """Cells that only earn badges will be checked soon: have their worker load what it needs, if they have one of their own."""
        if self._apart:
            self._earning.start()

    def check(self, prepared: Prepared, *, seed: int) -> Checked:
        """Replay every cell twice on inputs drawn from `seed` and compare. Required cells come first, up to the first failure.

        Of an autotuned candidate the configurations that are not chosen are checked too, at some cells (`configurations.py`), and the
        first call (`rehearsal.py`) at every required one: what it spoils may show at some values only. Raises ReplayerError.
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
        return Checked(ordered, rejection, _reports(rejection, prepared.atomics), seconds)

    def tune(self, prepared: Prepared, *, seed: int) -> Frozen | Rejection:
        """Time every configuration of the bench cell's autotuned launches and pick the fastest. Raises ReplayerError."""
        packed, blobs = pack_jobs([_bench(prepared)])
        try:
            answer = self._ask({"do": "tune", "jobs": packed, "seed": seed, **prepared.message()}, blobs)
        except WorkerLost as lost:
            return _timed_out(lost, "correct")
        if rejection := rejection_from_json(answer["rejection"]):
            return rejection
        choice = {int(step): int(config) for step, config in answer["choice"].items()}
        return Frozen(choice, _by_step(answer["times"]), _by_step(answer["refused"]))

    def race(self, prepared: Sequence[Prepared], *, seed: int) -> list[tuple[float, float]] | Rejection:
        """Time the bench cells of several candidates for one task against the first: microseconds, and the first's over its own.

        All must have passed `check`. NaN where nothing could be measured. Raises ReplayerError.
        """
        packed, blobs = pack_jobs([_bench(one) for one in prepared])
        try:
            answer = self._ask({"do": "race", "jobs": packed, "seed": seed}, blobs)
        except WorkerLost as lost:
            return _timed_out(lost, "timing")
        return rejection_from_json(answer["rejection"]) or [(float(us), float(ratio)) for us, ratio in answer["times"]]

    def time(self, prepared: Prepared, *, seed: int, options: TimingOptions | None = None) -> Timing | Rejection:
        """Time the bench cell against the baselines, building them first if they are cold.

        Raises ReplayerError, also for a time that cannot be true: that is a mistake in measuring until somebody explains it.
        """
        packed, blobs = pack_jobs([_bench(prepared)])
        message = {"do": "time", "jobs": packed, "seed": seed, "options": asdict(options or TimingOptions()), **prepared.message()}
        try:
            answer = self._ask(message, blobs)
        except WorkerLost as lost:
            return _timed_out(lost, "timing")
        rejection = rejection_from_json(answer["rejection"])
        if rejection and rejection.guard == BELOW_FLOOR:
            raise ReplayerError(rejection.reason)
        return rejection or timing_from_json(answer["timing"])

    def warm(self, task: TaskName, cell: Cell, *, graphed: bool = False) -> dict[str, str]:
        """Build the baselines of a cell ahead of time, and compile what else timing it needs; returns why baselines are missing."""
        answer = self._ask({"do": "warm", "task": asdict(task), "cell": asdict(cell), "graphed": graphed})
        return dict(answer["missing"])

    def interrupt(self) -> None:
        """From another thread: end the requests made so far, by ending the workers; they raise ReplayerError."""
        for worker in (self._first, self._earning):
            worker.interrupt()

    def close(self) -> None:
        """End the workers. The object can be used again."""
        for worker in (self._earning, self._first):
            worker.close()

    def _check_some(
        self, common: Mapping[str, Any], jobs: Sequence[CellJob]
    ) -> tuple[list[CellResult], Rejection | None, dict[str, float]]:
        if not jobs:
            return [], None, {}
        packed, blobs = pack_jobs(jobs)
        try:
            answer = self._ask({**common, "jobs": packed}, blobs)
        except WorkerLost as lost:
            rejection = _timed_out(lost, "correct")
            # A step at a cell has its name, which is a single word, in its text.
            hung = next((job.cell for job in jobs if job.cell.name in lost.step.text.split()), jobs[0].cell)
            return [CellResult(hung.name, hung.role, "fail", detail=rejection.reason)], rejection, {}
        cells = [result_from_json(cell) for cell in answer["cells"]]
        return cells, rejection_from_json(answer["rejection"]), dict(answer["seconds"])

    def _check_capabilities(self, common: Mapping[str, Any], jobs: Sequence[CellJob]) -> tuple[list[CellResult], dict[str, float]]:
        """Each for itself: one may cost the worker its context, and what it kept from being answered is asked again."""
        cells, seconds, waiting = list[CellResult](), dict[str, float](), list(jobs)
        while waiting:
            found, _, spent = self._check_some(common, waiting)
            cells += found
            seconds |= spent
            answered = {result.name for result in found}
            # There is none where a plan is not sound.
            waiting = [job for job in waiting if job.cell.name not in answered] if answered else []
        return cells, seconds

    def _check_configurations(
        self, common: Mapping[str, Any], jobs: Sequence[CellJob], choice: Mapping[int, int], seed: int
    ) -> Rejection | None:
        for which, others in other_configurations(jobs, choice, seed):
            _, rejection, _ = self._check_some({**common, "choice": {}}, others)
            # Triton passes over a configuration that cannot be launched.
            if rejection and rejection.guard != "kernel_error":
                return replace(rejection, reason=f"with configuration {which}, which Triton may pick: {rejection.reason}")
        return None

    def _check_first_calls(self, common: Mapping[str, Any], jobs: Sequence[CellJob], choice: Mapping[int, int]) -> Rejection | None:
        first_calls = [made for job in jobs if (made := _first_call(job, choice))]
        if not first_calls:
            return None
        _, rejection, _ = self._check_some({**common, "choice": {}}, first_calls)
        return blamed(rejection) if rejection else None

    def _ask(self, message: dict[str, Any], blobs: Sequence[bytes] = ()) -> dict[str, Any]:
        """One request. Raises WorkerLost when a candidate's kernel ran too long, ReplayerError otherwise."""
        earns = message["do"] == "check" and all(job["cell"]["role"] == "capability" for job in message["jobs"])
        who, other = (self._earning, self._first) if earns and self._apart else (self._first, self._earning)
        interrupts = who.interrupts
        # The worker waits for whoever has its turn.
        framed = wire.frame(message, blobs)
        if message["do"] == "check":
            with who.turn:
                before, beside = other.requests, other.asking
                try:
                    answer, lost = who.ask(framed, interrupts), None
                except WorkerLost as error:
                    answer, lost = {}, error
            failed = lost is not None or answer.get("ends") or answer.get("short")
            if not failed or (not beside and other.requests == before):
                return _unless_broken(answer, lost)
        with ExitStack() as alone:
            # In the same order always, so that nobody waits for one who waits for him.
            for worker in (self._earning, self._first):
                alone.enter_context(worker.turn)
            return _unless_broken(who.ask(framed, interrupts))


def _unless_broken(answer: dict[str, Any], lost: WorkerLost | None = None) -> dict[str, Any]:
    if lost is not None:
        raise lost
    if "broken" in answer:
        raise ReplayerError(answer["broken"])
    return answer


def _torch_has_cuda() -> bool:
    """Read from torch's version file, because importing torch takes seconds."""
    spec = find_spec("torch")
    file = Path(spec.origin).with_name("version.py") if spec and spec.origin else None
    text = file.read_text(encoding="utf-8") if file and file.is_file() else ""
    return re.search(r"^cuda\b[^=\n]*=\s*['\"]", text, re.MULTILINE) is not None


def unreached(cell: Cell) -> CellResult:
    """The result of a cell that a failure kept from being checked."""
    return CellResult(cell.name, cell.role, "skipped", detail="not reached")


def _first_call(job: CellJob, choice: Mapping[int, int]) -> CellJob | None:
    """The job of the plan's first call, or None when nothing in it is autotuned."""
    usable: dict[int, list[int]] = {}
    for step, config in sorted(job.binaries):
        usable.setdefault(step, []).append(config)
    first = rehearsal(job.plan, usable, choice)
    if first is None:
        return None
    return CellJob(job.cell, first.plan, {(step, 0): job.binaries[origin] for step, origin in first.origin.items()})


def _bench(prepared: Prepared) -> CellJob:
    if prepared.bench is None:
        raise ReplayerError("this task has no cell to time")
    return prepared.bench


def _by_step(found: Mapping[str, Mapping[str, Any]]) -> dict[int, dict[int, Any]]:
    return {int(step): {int(config): value for config, value in tried.items()} for step, tried in found.items()}


def _timed_out(lost: WorkerLost, stage: Stage) -> Rejection:
    return Rejection(stage, "timeout", f"the kernel did not end in time while {lost.step.text}: look for a loop that never ends")


def _reports(rejection: Rejection | None, atomics: bool) -> tuple[Check, ...]:
    """One report for each guard of the replay, also for those that were not reached."""
    reports = []
    for guard, meaning in CHECKS.items():
        if rejection and rejection.guard == guard:
            reports.append(Check(guard, "fail", rejection.reason))
        elif rejection:
            reports.append(Check(guard, "skipped", f"stopped by {rejection.guard}"))
        elif guard == "not_deterministic" and atomics:
            reports.append(Check(guard, "skipped", "the kernels use atomic operations; each run was compared on its own"))
        else:
            reports.append(Check(guard, "pass", meaning))
    if rejection and rejection.guard not in CHECKS:
        reports.append(Check(rejection.guard, "fail", rejection.reason))
    return tuple(reports)
