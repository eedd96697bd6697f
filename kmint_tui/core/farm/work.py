"""A worker's side: it does jobs on one device, with a warm referee. The same code runs in a worker
process of this host and in a Ray task.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kmint_tui.core.farm.devices import CPU
from kmint_tui.core.farm.job import Job, Versions, answer, check, task_of
from kmint_tui.errors import EnvironmentUnfit, KmintError

if TYPE_CHECKING:
    from referee.gpu.compile_candidate import CandidateSource
    from referee.gpu.replayer import Replayer
    from referee.judge import Referee
    from referee.ops.spec import Op
    from referee.sandbox.zygote import Workers
    from referee.target import Target

SEED_BITS = 63
VISIBLE = "CUDA_VISIBLE_DEVICES"


class Workbench:
    """Does jobs; several threads may call `do`. `versions` are those that it says it has.

    `device` None finds the name of the visible GPU at the first job.
    """

    def __init__(self, device: str | None = None, versions: Versions | None = None) -> None:
        self._versions = versions or Versions.here()
        self._given, self._visible = device, ""
        self._device: str | None = None
        self._lock = threading.Lock()
        self._open = ExitStack()
        self._referee: Referee | None = None
        self._replayer: Replayer | None = None
        self._sandbox: Workers | None = None
        self._target: Target | None = None

    @property
    def spent(self) -> dict[str, float]:
        """Seconds by part of the work of the GPU's processes so far."""
        from referee.timing.spent import added

        return added(*(one.spent for one in (self._replayer, self._referee) if one is not None))

    def interrupt(self) -> None:
        """Break off checks and cells under way, which then fail."""
        with self._lock:
            replayer, sandbox = self._replayer, self._sandbox
        if sandbox is not None:
            sandbox.close()
        if replayer is not None and replayer.busy:
            replayer.interrupt()

    def close(self) -> None:
        """End the referee's processes."""
        with self._lock:
            self._drop()

    def do(
        self,
        job: Job,
        tell: Callable[[str], None] = lambda step: None,
        count: Callable[[int, int], None] = lambda done, total: None,
    ) -> dict[str, Any]:
        """The answer to a job: never an exception for a job that cannot be done."""
        try:
            check(job, self._versions, self._here(job))
            return answer(self._done(job, tell, count))
        except KmintError as error:
            return answer(error)
        except Exception as error:
            said = f"{type(error).__name__}: {' '.join(str(error).split())}"
            return answer(KmintError(said, title="a fault in kmint itself", fix="report it"))

    def _here(self, job: Job) -> str:
        """The device that this process uses now. Ray may change it from job to job."""
        if self._given is not None:
            return self._given
        if job.device == CPU:
            os.environ[VISIBLE] = ""
        with self._lock:
            if self._device is None or os.environ.get(VISIBLE, "") != self._visible:
                self._drop()
                self._device, self._visible = visible_device(), os.environ.get(VISIBLE, "")
            return self._device

    def _drop(self) -> None:
        self._referee = self._replayer = self._sandbox = self._target = None
        self._open.close()
        self._open = ExitStack()

    def _done(
        self, job: Job, tell: Callable[[str], None], count: Callable[[int, int], None]
    ) -> dict[str, Any]:
        if job.do == "judge":
            verdict = self._warm(job).judge(
                job.sources[0],
                task_of(job),
                level=job.level,
                target=job.target,
                seed=job.seed,
                batch_invariant=job.batch_invariant,
                strict=job.strict,
                tell=tell,
                count=count,
            )
            return verdict.to_json()
        if job.do == "race":
            from referee.variant_timing import VariantsNotTimed

            try:
                laps = self._warm(job).time_variants(job.sources, task_of(job), seed=job.seed)
            except VariantsNotTimed as error:
                raise EnvironmentUnfit(str(error), title="not timed") from error
            return {"laps": [asdict(lap) for lap in laps]}
        do = {"gate": _gate, "begin": self._begun, "check": self._checked, "cell": self._cell}
        return do[job.do](job)

    def _warm(self, job: Job) -> Referee:
        from kmint_tui.core.referee import open_referee

        with self._lock:
            if self._referee is None:
                self._referee = self._open.enter_context(open_referee(job.demand))
            return self._referee

    def _replays(self) -> Replayer:
        from kmint_tui.core.measuring import cache
        from referee.gpu.replayer import Replayer

        with self._lock:
            if self._replayer is None:
                self._replayer = self._open.enter_context(Replayer(cache=cache() / "baselines"))
            return self._replayer

    def _workers(self, job: Job) -> Workers:
        from referee.compiling.compile_jobs import ENTRY as COMPILES
        from referee.sandbox.zygote import COMPILERS_NICE, Workers
        from referee.tracing.trace import ENTRY as TRACES

        # Jobs begin with these modules, which a job would otherwise import itself.
        ahead = [entry.partition(":")[0] for entry in (TRACES, COMPILES)]
        with self._lock:
            if self._sandbox is None:
                sandbox = Workers(demand=job.demand, nice=COMPILERS_NICE, ahead=ahead)
                self._sandbox = self._open.enter_context(sandbox)
            return self._sandbox

    def _target_of(self) -> Target:
        """The target of the device, for which a busy worker is asked once."""
        from referee.gpu.compile_candidate import target_of

        if self._target is None:
            self._target = target_of(self._replays())
        return self._target

    def _begun(self, job: Job) -> dict[str, Any]:
        """The environment, from processes that are then ready for checks and cells."""
        from kmint_tui.core.measuring import referee_failures

        with referee_failures(job.demand):
            self._workers(job)
            self._target_of()
            return {"environment": self._replays().environment()}

    def _checked(self, job: Job) -> dict[str, Any]:
        """The rejection of the kernel at the cells of its operation, or None."""
        import secrets

        from referee.verdict import Rejection

        replayer, seed = self._replays(), secrets.randbits(SEED_BITS)
        with _candidate(job, self._workers(job), self._target_of) as (candidate, _):
            ready = candidate.everywhere(replayer, seed)
            rejection = (
                ready
                if isinstance(ready, Rejection)
                else replayer.check(ready, seed=seed).rejection
            )
        return {"rejection": asdict(rejection) if rejection else None}

    def _cell(self, job: Job) -> dict[str, Any]:
        """One cell of a grid: its `GridPoint`, and the seconds of each part."""
        import secrets

        from referee.grid import grid_cell, measured_point
        from referee.timing.spent import Spent

        replayer, place, spent = self._replays(), job.cell, Spent()
        assert place is not None
        with _candidate(job, self._workers(job), self._target_of) as (candidate, op):
            point = measured_point(
                grid_cell(op, place.rows, place.columns, place.dtype),
                lambda cell: candidate.at(replayer, cell, secrets.randbits(SEED_BITS)),
                replayer,
                spent=spent,
            )
        return {"point": asdict(point), "seconds": spent.seconds}


def _gate(job: Job) -> dict[str, Any]:
    """One run of a gate in fresh processes, as a `GateReport`."""
    from convert.files import temporary_folder
    from referee.gate import gate
    from referee.sandbox.zygote import Workers

    with (
        Workers(demand=job.demand) as workers,
        _candidate(job, workers) as (candidate, _),
        temporary_folder() as scratch,
    ):
        return gate(candidate.everywhere, runs=1, scratch=scratch).to_json()


@contextmanager
def _candidate(
    job: Job, workers: Workers, target: Callable[[], Target | None] = lambda: None
) -> Iterator[tuple[CandidateSource, Op]]:
    """The kernel of a job, ready to be compiled. Raises EnvironmentUnfit."""
    from kmint_tui.core.measuring import cache, referee_failures
    from referee.gpu.compile_candidate import CandidateSource
    from referee.problem import Problem

    problem = Problem(task_of(job)).fitting(job.sources[0])
    with referee_failures(job.demand):
        kernels = cache() / "kernels"
        source = job.sources[0]
        made = CandidateSource(source, problem, workers, cache=kernels, target=target())
        yield made, problem.op


def visible_device() -> str:
    """The name of the GPU that CUDA takes, or `cpu`."""
    from kmint_tui.core.farm.devices import gpus

    try:
        return gpus()[0].name
    except EnvironmentUnfit:
        return CPU
