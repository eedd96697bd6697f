"""The judge: one candidate in, one verdict out. Cheapest stage first, stop at the first failure.

    from referee import judge
    verdict = judge(open("softmax.py").read(), "softmax")

The candidate's text is screened; its Python runs only in the trace worker, on tensors without values; its kernels, cut out by
the judge, are compiled; then the traced plan is replayed on a GPU, and interpreted on the CPU. The secret seed is drawn when the
text is fixed, and a cell's inputs from it only when its plan and kernels are; some shapes come from it too. Several threads may judge
at once. What goes wrong on the referee's own side is a verdict "error", never "rejected". A level below "correct" ends in
"unsure": nothing was found, and nothing more is known.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from referee.compiling.toolchain import ToolchainError
from referee.device.gpu import Replayer, ReplayerError
from referee.device.jobs import TaskName
from referee.interpreter.interpret import InterpreterUnsupported
from referee.judgement import Judgement, Level, secret_seed
from referee.measuring.measurement import TimingOptions
from referee.on_cpu import OnCpu, too_large
from referee.on_gpu import OnGpu
from referee.race import Lap, NoRace, race
from referee.reading.markdown import unfenced
from referee.report import Rejected, Report, to_nobody
from referee.sandbox.workers import JobLost, Workers
from referee.sandbox.zygote import ZygoteError
from referee.subject import Subject
from referee.target import Target
from referee.triton_version import UnknownTriton, check_triton
from referee.verdict import Mode, Verdict
from referee.versions import describe_host

if TYPE_CHECKING:
    from referee.ops.task import Task

__all__ = ["Level", "Referee", "TaskName", "judge"]

COMPILERS_NICE = 10
MOST_NAMED = 2
"""So many impostors are named where there is little room."""


class Referee:
    """Keeps workers warm between verdicts. Construction waits for nothing; close it, or use it as a context.

    `mode` None replays where a GPU can be used and interprets otherwise. `cache` is a directory for compiled kernels and
    baselines, made when first needed; None keeps no kernels, and baselines where `referee.device.gpu` keeps them. `host_screen` False
    leaves out the screen of host code: for the selftest, which shows that nothing but quick feedback depends on it.
    """

    def __init__(
        self, *, mode: Mode | None = None, cache: Path | None = None, timing: TimingOptions | None = None, host_screen: bool = True
    ) -> None:
        self.no_gpu = Replayer.available()
        self.mode: Mode = mode or ("interpret" if self.no_gpu else "replay")
        self._cache = cache
        self._timing = timing
        self._host_screen = host_screen
        self._lock = threading.Lock()
        # Beside a GPU the process that keeps its queue full goes first: what it waits for, every candidate waits for.
        nice = COMPILERS_NICE if self.mode == "replay" else 0
        self._workers = Workers(nice=nice)
        self._interpreters = Workers(interpret=True, nice=nice)
        self._replayer = Replayer(cache=cache / "baselines" if cache else None) if self.mode == "replay" else None
        self._device: dict[str, Any] | None = None
        self._vacuity: dict[TaskName | int, tuple[str, ...]] = {}

    def __enter__(self) -> Referee:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End every worker and with it the judgements under way, which say "error". May be called more than once."""
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
        tell: Callable[[str], None] = to_nobody,
    ) -> Verdict:
        """The verdict on `source`, for an op by its catalogue or remix name, a task, or a user's reference file (TaskName).

        Without a GPU, for another target than the GPU here, or for a task that only this process holds, `full` means `correct`.
        `seed` repeats the inputs of an earlier verdict; `tell` is called with what is done next, in words. Raises UnknownOp,
        UnknownTarget or UserReferenceError for arguments that name nothing; nothing that the candidate or the referee's own
        machinery does raises.
        """
        wanted = Target.parse(target) if isinstance(target, str) else target
        subject = Subject(op)
        report = Report(subject.op.name, self.mode, seed, environment=describe_host(), tell=tell)
        try:
            return self._judged(report, source, subject, level, wanted)
        except Rejected as rejected:
            return report.rejected(rejected.rejection)
        except InterpreterUnsupported as error:
            return report.failed("referee", f"{error}: judge this kernel on a GPU")
        except (ZygoteError, ReplayerError, ToolchainError, UnknownTriton, JobLost) as error:
            return report.failed("referee", str(error))
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{os.path.basename(where.filename)}:{where.lineno}"
            return report.failed("referee", f"internal failure at {place}: {type(error).__name__}: {error}")

    def warm(self, op: str | TaskName) -> dict[str, str]:
        """Build the baselines of the op's timed cell ahead of its first verdict; why some are missing. Nothing without a GPU.

        Raises UnknownOp, UserReferenceError, or ReplayerError when the machinery fails.
        """
        subject = Subject(op)
        cell = subject.bench()
        if self._replayer is None or subject.name is None or cell is None:
            return {}
        return self._replayer.warm(subject.name, cell)

    def race(self, sources: Sequence[str], op: str | TaskName, *, seed: int | None = None) -> tuple[Lap, ...]:
        """Race variants of one kernel at the op's timed cell against the first of them (`referee.race`).

        Raises NoRace where that cannot be done: without a GPU, for a task without a timed cell, when the machinery fails.
        """
        if self._replayer is None:
            raise NoRace(f"a race needs a GPU: {self.no_gpu or 'the referee was opened without one'}")
        subject = Subject(op)
        cell, name = subject.bench(), subject.name
        if cell is None or name is None:
            raise NoRace("this task has no cell that is timed")
        try:
            target, _ = self._settle(Report(subject.op.name, self.mode, seed), subject, None)
            cache = self._cache / "kernels" if self._cache else None
            return race(self._workers, self._replayer, sources, name, cell, target, seed=secret_seed(seed), cache=cache)
        except (ZygoteError, ReplayerError, ToolchainError, UnknownTriton, JobLost) as error:
            raise NoRace(str(error)) from error

    def _judged(self, report: Report, source: str, subject: Subject, level: Level, wanted: Target | None) -> Verdict:
        judgement = Judgement(report, unfenced(source), subject, wanted or Target(), self._workers, self._cache)
        module = judgement.screen(host_code=self._host_screen)
        if level == "screen":
            reason = "the screen found nothing; nothing was compiled or run"
            return report.ended("unsure", reason, unreached="the level asked for is screen")
        check_triton()
        judgement.target, why = self._settle(report, subject, wanted)
        if level != "compile" and report.mode == "interpret" and (large := too_large(subject)):
            return report.failed("referee", large)
        if subject.op.origin == "user":
            self._note_vacuity(report, subject)
        if level == "compile":
            return judgement.compile_only(module)
        seed = report.seed = secret_seed(report.seed)
        if why is None and self._replayer:
            return OnGpu(judgement, module, self._replayer, self._interpreters, seed).verdict(level, self._timing)
        return OnCpu(judgement, module, self._interpreters, seed).verdict(why or "the referee was opened without a GPU")

    def _settle(self, report: Report, subject: Subject, wanted: Target | None) -> tuple[Target, str | None]:
        """The target, and why it cannot be replayed on; both go into the report."""
        report.environment = describe_host(self._workers.protections)
        why = self.no_gpu
        target = wanted or Target()
        if self._replayer:
            with self._lock:
                self._device = self._device or self._replayer.environment()
            known = self._device["target"]
            here = Target.from_json(known) if known else Target(arch=self._device["arch"])
            target = wanted or here
            if target.arch != here.arch:
                why = f"the GPU here is {here.name}"
            elif not subject.replayable:
                why = "the reference is no file that the replay worker could load"
            else:
                same_triton(report.environment["triton"], self._device["triton"])
                report.environment |= self._device
        report.mode = "interpret" if why or not self._replayer else "replay"
        report.environment.setdefault("device", "cpu")
        report.environment["target"] = target.name
        return target, why

    def _note_vacuity(self, report: Report, subject: Subject) -> None:
        """Whether a user's reference can tell a right answer from an obviously wrong one; it does not change the verdict."""
        from referee.ops.user_words import drawn_values, not_judged

        task = subject.task("gpu" if report.mode == "replay" else "cpu")
        report.passes("values", drawn_values(task.required, task.given))
        for words in not_judged(task.given):
            report.reserve(words)
        key = subject.name or id(subject.task("cpu"))
        if key not in self._vacuity:
            from referee.answers.user_task import accepted_impostors

            report.tell("testing whether the reference tells right answers from wrong ones")
            self._vacuity[key] = accepted_impostors(subject.task("cpu"), secret_seed(None))
        found = self._vacuity[key]
        if found:
            report.fails("vacuity", f"reference supplied by the user: this task accepts {', '.join(found)}")
            more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
            report.reserve(f"reference supplied by the user: it also accepts {', '.join(found[:MOST_NAMED])}{more}")
        else:
            report.passes("vacuity", "reference supplied by the user: every impostor was caught")


def same_triton(here: str | None, there: str | None) -> None:
    """Raise ReplayerError when kernels would be compiled by one Triton and timed against the baselines of another."""
    if here != there:
        raise ReplayerError(f"triton {here} compiles, and the process that replays finds triton {there}: have one of them on the path")


def judge(
    source: str, op: str | Task | TaskName, *, level: Level = "full", target: str | Target | None = None, seed: int | None = None
) -> Verdict:
    """One verdict with workers of its own; open a `Referee` for more than one. Arguments and errors as `Referee.judge`."""
    with Referee() as referee:
        return referee.judge(source, op, level=level, target=target, seed=seed)


class _CallableModule(ModuleType):
    # `from referee import judge` must give something to call, also after `import referee.judge` has put this module there.
    def __call__(self, source: str, op: str | Task | TaskName, **options: Any) -> Verdict:
        return judge(source, op, **options)


sys.modules[__name__].__class__ = _CallableModule
