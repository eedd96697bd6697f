"""From a candidate's source to a replay worker's input, for callers without a verdict: gate, grid,
benches.

A sandbox traces it, workers compile it, and the measuring worker chooses autotune configurations at
the timed test case. Torch-free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from referee.candidate import uses_atomics
from referee.compiling.compile import compile_plans
from referee.gpu.jobs import CompiledCandidate, replay_jobs
from referee.gpu.replayer import Replayer
from referee.ops.fresh_cells import fresh_cells
from referee.ops.spec import Cell
from referee.problem import Problem, TaskName, required
from referee.reading.kernels import KernelError, extract
from referee.sandbox.zygote import Zygote
from referee.target import Target
from referee.tracing.trace import trace
from referee.verdict import Rejection


def compile_candidate(
    zygote: Zygote,
    source: str,
    task: TaskName,
    cells: Sequence[Cell],
    target: Target,
    *,
    cache: Path | None = None,
) -> CompiledCandidate | Rejection:
    """The candidate at `cells`. Raises ZygoteError, ToolchainError or UnknownTriton."""
    try:
        module = extract(source)
    except KernelError as error:
        return Rejection("screen", error.guard, str(error))
    plans = trace(zygote, source, cells, target, module)
    if isinstance(plans, Rejection):
        return plans
    compiled = compile_plans(zygote, module, plans, target, cache)
    if isinstance(compiled, Rejection):
        return compiled
    traced = list(zip(cells, plans, strict=True))
    jobs = tuple(replay_jobs(traced, compiled))
    return CompiledCandidate(task, jobs, uses_atomics(module, traced))


def choose_autotune_config(
    replayer: Replayer, prepared: CompiledCandidate, *, seed: int
) -> CompiledCandidate | Rejection:
    """The candidate with the fastest configuration of each launch. Raises ReplayerError."""
    bench = prepared.bench
    if bench is None or not bench.plan.has_configs:
        return prepared
    found = replayer.tune(prepared, seed=seed)
    return found if isinstance(found, Rejection) else replace(prepared, choice=found.choice)


class CandidateSource:
    """One source for one operation. `cache` keeps compiled kernels; None keeps none. `target` None
    asks the replay worker, which may be busy.

    Every method raises ReplayerError, ZygoteError, JobLost, ToolchainError or UnknownTriton when
    the machinery fails.
    """

    def __init__(
        self,
        source: str,
        problem: Problem,
        workers: Zygote,
        *,
        cache: Path | None = None,
        target: Target | None = None,
    ) -> None:
        if problem.name is None:
            raise ValueError("a replay worker cannot load a task that only this process holds")
        self._source, self._problem, self._name = source, problem, problem.name
        self._workers, self._cache, self._target = workers, cache, target

    def everywhere(self, replayer: Replayer, seed: int) -> CompiledCandidate | Rejection:
        """The candidate at every test case, the timed one and the seed's fresh ones included."""
        fresh = fresh_cells(
            self._problem.op,
            seed,
            gpu=True,
            multiprocessors=self._known(replayer).properties.multi_processor_count,
        )
        return self._ready(replayer, [*required(self._problem.cells("gpu")), *fresh], seed)

    def at(self, replayer: Replayer, cell: Cell, seed: int) -> CompiledCandidate | Rejection:
        """The candidate at one test case, with autotune configurations chosen for it."""
        return self._ready(replayer, [cell], seed)

    def _ready(
        self, replayer: Replayer, cells: Sequence[Cell], seed: int
    ) -> CompiledCandidate | Rejection:
        found = compile_candidate(
            self._workers,
            self._source,
            self._name,
            cells,
            self._known(replayer),
            cache=self._cache,
        )
        return (
            found
            if isinstance(found, Rejection)
            else choose_autotune_config(replayer, found, seed=seed)
        )

    def _known(self, replayer: Replayer) -> Target:
        self._target = self._target or target_of(replayer)
        return self._target


def target_of(replayer: Replayer) -> Target:
    """The target of the replay worker's device. Raises ReplayerError."""
    device = replayer.environment()
    return (
        Target.from_json(device["target"]) if device.get("target") else Target(arch=device["arch"])
    )
