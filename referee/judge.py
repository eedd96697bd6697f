"""The judge: takes one candidate, and returns one verdict after its first failed stage.

    from referee import judge
    verdict = judge(open("softmax.py").read(), "softmax")

The text is screened. Its Python runs only in the trace worker, on tensors without values. The judge
cuts out the kernels and compiles them. The traced plan is replayed on a GPU, and interpreted on the
CPU.

The secret seed is drawn after the text is fixed. A cell's inputs are drawn after its plan and
kernels are fixed. Some shapes come from the seed too. Several threads may judge at once. A failure
of the referee itself gives the verdict "error", never "rejected". A level below "correct" ends in
"unsure", because nothing was run.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from referee.candidate import Level
from referee.cases import CaseData, without_gpu
from referee.compiling.compile_jobs import ENTRY as COMPILE_ENTRY
from referee.concurrency import Memo, single_torch_thread
from referee.gpu.replayer import Replayer, ReplayerError
from referee.interpreter.interpret import ENTRY as INTERPRET_ENTRY
from referee.interpreter.interpret import InterpreterUnsupported
from referee.problem import Problem, TaskName, too_large
from referee.reading.source import unfenced
from referee.report import LIMITS, Beyond, Rejected, Report, to_nobody, uncounted
from referee.sandbox.demand import Demand, weakness_text
from referee.sandbox.zygote import COMPILERS_NICE, JobLost, Workers, ZygoteError
from referee.stages.check_cpu import verdict_on_cpu
from referee.stages.check_gpu import OnGpu
from referee.stages.compile import compile_only
from referee.stages.screen import screened
from referee.target import Target
from referee.timing.measurement import TimingOptions
from referee.tracing.trace import ENTRY as TRACE_ENTRY
from referee.variant_timing import VariantsNotTimed, VariantTime, time_variants
from referee.verdict import Mode, Verdict
from referee.versions import (
    ToolchainError,
    UnknownTriton,
    check_triton,
    compiler_reservation,
    describe_host,
)

if TYPE_CHECKING:
    from referee.ops.task import Task

__all__ = ["Level", "Referee", "TaskName", "judge"]

SEED_BITS = 63
MOST_SEEDS = 2
"""Number of seeds whose inputs are kept. The drafts of one round share a seed."""
MOST_NAMED = 2
"""Maximum number of accepted wrong answers listed in the one-line reason."""


class Referee:
    """Keeps workers warm between verdicts. Close it, or use it as a context manager.

    The constructor does not wait for the workers. `mode` None replays if a GPU is usable, and
    interprets otherwise. `cache` is the directory for compiled kernels and baselines, created on
    demand. With None, kernels are not kept, and baselines are kept where `referee.gpu.replayer` puts
    them. `demand` names the sandbox layers that must be active; if one is missing, every verdict is
    an error.
    """

    def __init__(
        self,
        *,
        mode: Mode | None = None,
        cache: Path | None = None,
        timing: TimingOptions | None = None,
        demand: Demand = "files",
    ) -> None:
        self.no_gpu = Replayer.available()
        self.mode: Mode = mode or ("interpret" if self.no_gpu else "replay")
        self._kernels = cache / "kernels" if cache else None
        self._timing = timing
        self._lock = threading.Lock()
        # The process that fills the GPU's queue has priority, because every candidate waits for it.
        nice = COMPILERS_NICE if self.mode == "replay" else 0
        self._workers = Workers(
            demand=demand, nice=nice, ahead=(_module(TRACE_ENTRY), _module(COMPILE_ENTRY))
        )
        self._interpreters = Workers(
            interpret=True, demand=demand, nice=nice, ahead=(_module(INTERPRET_ENTRY),)
        )
        baselines = cache / "baselines" if cache else None
        self._replayer = Replayer(cache=baselines) if self.mode == "replay" else None
        self._device: dict[str, Any] | None = None
        self._accepted = Memo()
        self._data = OrderedDict[tuple[TaskName, frozenset[str], int], CaseData]()

    def __enter__(self) -> Referee:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End every worker; judgements under way return "error". May be called more than once."""
        self._workers.close()
        if self._replayer and self._replayer.busy:
            self._replayer.interrupt()
        self._interpreters.close()
        if self._replayer:
            self._replayer.close()

    def judge(
        self,
        source: str,
        op: str | Task | TaskName,
        *,
        level: Level = "full",
        target: str | Target | None = None,
        seed: int | None = None,
        batch_invariant: bool = False,
        strict: bool = False,
        tell: Callable[[str], None] = to_nobody,
        count: Callable[[int, int], None] = uncounted,
    ) -> Verdict:
        """The verdict on `source`, for an operation's name, a task, or a user's reference file.

        `full` means `correct` without a GPU, for another target than the GPU here, or for a task
        that exists only in this process.

        - `seed` repeats the inputs of an earlier verdict. The candidate's author must not know it.
          Without a GPU, stored inputs of this seed are used again.
        - `batch_invariant` rejects a candidate that fails the check of that name.
        - `strict` rejects host code outside the allow-list, which is a reservation otherwise. It
          rejects parts of Triton that are not judged, which are an error otherwise.
        - `tell` is called with the name of the next step.
        - `count` is called in any thread with the number of finished interpreter cases and their
          total.

        Raises UnknownOp, UnknownTarget or UnusableReference for arguments that name nothing.
        Failures of the candidate or of the referee do not raise.
        """
        wanted = Target.parse(target) if isinstance(target, str) else target
        problem = Problem(op)
        report = Report(
            problem.op.name, self.mode, seed, environment=describe_host(), tell=tell, count=count
        )
        try:
            return self._run_stages(report, source, problem, level, wanted, batch_invariant, strict)
        except Rejected as rejected:
            found = rejected.rejection
            if found.guard in LIMITS and not strict:
                return report.failed(found.guard, found.reason)
            return report.rejected(found)
        except Beyond as error:
            return report.failed("referee", str(error))
        except InterpreterUnsupported as error:
            return report.failed("referee", f"{error}: judge this kernel on a GPU")
        except (ZygoteError, ReplayerError, ToolchainError, UnknownTriton, JobLost) as error:
            return report.failed("referee", str(error))
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{os.path.basename(where.filename)}:{where.lineno}"
            said = f"internal failure at {place}: {type(error).__name__}: {error}"
            return report.failed("referee", said)

    @property
    def spent(self) -> dict[str, float]:
        """Seconds by part of the GPU processes' work; empty without a GPU."""
        return self._replayer.spent if self._replayer else {}

    def prepare(self, op: str | TaskName, seed: int) -> None:
        """Before the first candidate, start the GPU's process, or without a GPU draw the inputs and
        compute the answers of this seed.

        Raises UnknownOp, UnusableReference or ReplayerError.
        """
        problem = Problem(op).drawing(seed)
        if self._replayer:
            self._greeted(self._replayer)
        if self._replayer or too_large(problem):
            return
        with single_torch_thread():
            data = self._case_data(problem, seed, keep=True)
            cases = without_gpu(problem, seed)
            for cell in (*cases.required, *cases.capabilities):
                data.right_answers(cell)
        if problem.op.is_function:
            self._accepted_wrong_answers(problem)

    def warm(self, op: str | TaskName) -> dict[str, str]:
        """Build the baselines of the op's timed cell before its first verdict.

        Returns the missing baselines with reasons; nothing without a GPU. Raises UnknownOp,
        UnusableReference, or ReplayerError if the replay fails.
        """
        problem = Problem(op)
        cell = problem.bench()
        if self._replayer is None or problem.name is None or cell is None:
            return {}
        return self._replayer.warm(problem.name, cell)

    def time_variants(
        self, sources: Sequence[str], op: str | TaskName, *, seed: int | None = None
    ) -> tuple[VariantTime, ...]:
        """Time variants of one kernel against the first of them, at the op's timed cell.

        Raises VariantsNotTimed without a GPU, for a task without a timed cell, or if the replay
        fails.
        """
        if self._replayer is None:
            why = self.no_gpu or "the referee was opened without one"
            raise VariantsNotTimed(f"a race needs a GPU: {why}")
        problem = Problem(op).fitting(sources[0]) if sources else Problem(op)
        cell, name = problem.bench(), problem.name
        if cell is None or name is None:
            raise VariantsNotTimed("this task has no cell that is timed")
        try:
            target, _ = self._settle(Report(problem.op.name, self.mode, seed), problem, None)
            return time_variants(
                self._workers,
                self._replayer,
                sources,
                name,
                cell,
                target,
                seed=secret_seed(seed),
                cache=self._kernels,
            )
        except (ZygoteError, ReplayerError, ToolchainError, UnknownTriton, JobLost) as error:
            raise VariantsNotTimed(str(error)) from error

    def _run_stages(
        self,
        report: Report,
        source: str,
        problem: Problem,
        level: Level,
        wanted: Target | None,
        batch_invariant: bool,
        strict: bool,
    ) -> Verdict:
        candidate = screened(
            report, unfenced(source), problem, self._workers, self._kernels, strict=strict
        )
        if level == "screen":
            reason = "the screen found nothing; nothing was compiled or run"
            return report.ended("unsure", reason, unreached="the requested level is screen")
        check_triton()
        problem = candidate.problem
        target, why = self._settle(report, problem, wanted)
        if level != "compile" and report.mode == "interpret" and (large := too_large(problem)):
            return report.failed("referee", large)
        if problem.op.is_function:
            self._note_vacuity(report, problem)
        candidate = replace(candidate, target=target, batch_invariant=batch_invariant)
        if level == "compile":
            return compile_only(candidate)
        given = report.seed is not None
        seed = report.seed = secret_seed(report.seed)
        candidate = replace(candidate, seed=seed, problem=problem.drawing(seed))
        if why is None and self._replayer:
            on_gpu = OnGpu(candidate, self._replayer, self._interpreters)
            return on_gpu.verdict(level, self._timing)
        data = self._case_data(candidate.problem, seed, keep=given)
        why = why or "the referee was opened without a GPU"
        return verdict_on_cpu(candidate, self._interpreters, data, why)

    def _case_data(self, problem: Problem, seed: int, *, keep: bool) -> CaseData:
        """The data of a problem at a seed. `keep` stores it for later verdicts at the same seed."""
        if problem.name is None or not keep:
            return CaseData(problem.task("cpu"), seed)
        key = (problem.name, problem.without, seed)
        with self._lock:
            found = self._data.get(key)
            if found is None:
                found = self._data[key] = CaseData(problem.task("cpu"), seed)
            self._data.move_to_end(key)
            while len(self._data) > MOST_SEEDS:
                self._data.popitem(last=False)
            return found

    def _settle(
        self, report: Report, problem: Problem, wanted: Target | None
    ) -> tuple[Target, str | None]:
        """The target, and why it cannot be replayed on, or None. Both go into the report."""
        protections = self._workers.protections
        report.environment = describe_host(protections)
        report.weakness = weakness_text(protections)
        report.reserve(compiler_reservation(report.environment))
        why = self.no_gpu
        target = wanted or Target()
        if self._replayer:
            device = self._greeted(self._replayer)
            known = device["target"]
            here = Target.from_json(known) if known else Target(arch=device["arch"])
            target = wanted or here
            if target.arch != here.arch:
                why = f"the GPU here is {here.name}"
            elif not problem.replayable:
                why = "the reference is no file that the replay worker could load"
            else:
                same_triton(report.environment["triton"], device["triton"])
                report.environment |= device
        report.mode = "interpret" if why or not self._replayer else "replay"
        report.environment.setdefault("device", "cpu")
        report.environment["target"] = target.name
        return target, why

    def _greeted(self, replayer: Replayer) -> dict[str, Any]:
        """The environment of the GPU's process, which is asked once."""
        with self._lock:
            self._device = self._device or replayer.environment()
            return self._device

    def _note_vacuity(self, report: Report, problem: Problem) -> None:
        """Report whether a user's reference distinguishes correct answers from obviously wrong
        ones.

        The verdict does not depend on it.
        """
        from referee.reference.words import drawn_values

        task = problem.task("gpu" if report.mode == "replay" else "cpu")
        report.passes("values", drawn_values(task.required, task.given))
        if task.notes:
            report.passes("reference", "; ".join(task.notes))
        for words in task.reservations:
            report.reserve(words)
        report.tell("testing whether the reference tells right answers from wrong ones")
        found, whose = self._accepted_wrong_answers(problem), "reference supplied by the user"
        if found:
            report.fails("vacuity", f"{whose}: this task accepts {', '.join(found)}")
            more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
            report.reserve(f"{whose}: it also accepts {', '.join(found[:MOST_NAMED])}{more}")
        else:
            report.passes("vacuity", f"{whose}: every wrong answer was caught")

    def _accepted_wrong_answers(self, problem: Problem) -> tuple[str, ...]:
        from referee.answers.user_task import accepted_wrong_answers

        key = problem.name or id(problem.task("cpu"))
        return self._accepted.get(
            key, lambda: accepted_wrong_answers(problem.task("cpu"), secret_seed(None))
        )


def _module(entry: str) -> str:
    return entry.partition(":")[0]


def secret_seed(seed: int | None) -> int:
    """The given seed, which repeats an earlier verdict, or a random one."""
    return secrets.randbits(SEED_BITS) if seed is None else seed


def same_triton(here: str | None, there: str | None) -> None:
    """Raise ReplayerError if candidates and baselines would be compiled by different Tritons."""
    if here != there:
        raise ReplayerError(
            f"triton {here} compiles, and the process that replays finds triton {there}: have one of them on the path"
        )


def judge(
    source: str,
    op: str | Task | TaskName,
    *,
    level: Level = "full",
    target: str | Target | None = None,
    seed: int | None = None,
) -> Verdict:
    """One verdict with its own workers. Arguments and errors as in `Referee.judge`."""
    with Referee() as referee:
        return referee.judge(source, op, level=level, target=target, seed=seed)


class _CallableModule(ModuleType):
    # `from referee import judge` must stay callable after `import referee.judge` has replaced the
    # name by this module.
    def __call__(self, source: str, op: str | Task | TaskName, **options: Any) -> Verdict:
        return judge(source, op, **options)


sys.modules[__name__].__class__ = _CallableModule
