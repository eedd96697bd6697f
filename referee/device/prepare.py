"""From a candidate's source to what the replay worker takes, for callers that want no verdict: the gate, the grid, benches.

Trace, compile, and settle autotuned launches at the bench cell. Torch-free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from referee.compiling.compile import compile_plans
from referee.device.gpu import Replayer
from referee.device.jobs import CellJob, Prepared, TaskName
from referee.ops.spec import Cell
from referee.plans.plan import Launch
from referee.reading.kernels import KernelError, extract
from referee.sandbox.zygote import Zygote
from referee.target import Target
from referee.tracing.trace import trace
from referee.verdict import Rejection


def prepare(
    zygote: Zygote, source: str, task: TaskName, cells: Sequence[Cell], target: Target, *, cache: Path | None = None
) -> Prepared | Rejection:
    """The candidate's plans and kernels at `cells`. Raises ZygoteError, ToolchainError or UnknownTriton."""
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
    launched = {step.kernel for plan in plans for step in plan.steps if isinstance(step, Launch)}
    atomics = any(signature.atomic for signature in module.signatures if signature.name in launched)
    jobs = (CellJob(cell, plan, binaries.found) for cell, plan, binaries in zip(cells, plans, compiled, strict=True))
    return Prepared(task, tuple(jobs), atomics)


def settle(replayer: Replayer, prepared: Prepared, *, seed: int) -> Prepared | Rejection:
    """The candidate with the fastest configuration of each autotuned launch frozen. Raises ReplayerError."""
    bench = prepared.bench
    if bench is None or not any(isinstance(step, Launch) and len(step.configs) > 1 for step in bench.plan.steps):
        return prepared
    found = replayer.tune(prepared, seed=seed)
    return found if isinstance(found, Rejection) else replace(prepared, choice=found.choice)
