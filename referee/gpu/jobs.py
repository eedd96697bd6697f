"""The judge's requests to the replay worker and the worker's answers, as data on both sides.

A replay job is a test case, its launch plan, and the compiled kernel of every launch and
configuration. The worker parses the plan again, strictly. It executes only the plan's steps and the
cubins. Torch-free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from referee.compiling.binaries import Binaries, Binary
from referee.gpu import wire
from referee.ops.spec import Cell, Scalar, spec_from_json
from referee.plans.autotune import representative_cells
from referee.plans.plan import Launch, LaunchPlan
from referee.plans.plan_parse import dump, parse
from referee.problem import TaskName
from referee.verdict import CellResult, Check, Rejection


@dataclass(frozen=True)
class ReplayJob:
    """A plan at a test case, with compiled kernels by (step number, configuration number)."""

    cell: Cell
    plan: LaunchPlan
    binaries: Mapping[tuple[int, int], Binary]


@dataclass(frozen=True)
class CompiledCandidate:
    """A candidate traced and compiled at every test case: the complete input of a replay worker.

    `atomics` says that its kernels use atomic operations, so bits may differ between runs. `choice`
    maps step numbers to the chosen configuration; the default is the first compiled one.
    """

    task: TaskName
    jobs: tuple[ReplayJob, ...]
    atomics: bool = False
    choice: Mapping[int, int] = field(default_factory=dict)

    @property
    def bench(self) -> ReplayJob | None:
        """The timed job, if there is one."""
        return next((job for job in self.jobs if job.cell.role == "bench"), None)

    def message(self) -> wire.Message:
        """All fields except the jobs, as JSON."""
        choice = {str(step): config for step, config in self.choice.items()}
        return {"task": asdict(self.task), "atomics": self.atomics, "choice": choice}


def replay_jobs(
    traced: Sequence[tuple[Cell, LaunchPlan]], compiled: Sequence[Binaries]
) -> list[ReplayJob]:
    """Test cases with their plans and the kernels of each plan."""
    return [
        ReplayJob(cell, plan, binaries.found)
        for (cell, plan), binaries in zip(traced, compiled, strict=True)
    ]


def other_configurations(
    jobs: Sequence[ReplayJob], choice: Mapping[int, int], seed: int
) -> Iterator[tuple[int, list[ReplayJob]]]:
    """Each configuration that is not chosen everywhere, with representative jobs that use it."""
    several = any(job.plan.has_configs for job in jobs)
    where = representative_cells([job.cell for job in jobs], seed) if several else []
    chosen = [job for job in jobs if job.cell in where]
    for which in sorted({config for job in chosen for _, config in job.binaries}):
        if made := [other for job in chosen if (other := _with(job, which, choice))]:
            yield which, made


def _with(job: ReplayJob, which: int, choice: Mapping[int, int]) -> ReplayJob | None:
    """The job with configuration `which` in every launch that has it; None if nothing changes."""
    steps, binaries, differs = [], {}, False
    for number, step in enumerate(job.plan.steps):
        if isinstance(step, Launch):
            usable = sorted(config for launch, config in job.binaries if launch == number)
            picked = choice[number] if choice.get(number) in usable else usable[0]
            config = which if which in usable else picked
            differs = differs or config != picked
            binaries[number, 0] = job.binaries[number, config]
            step = Launch(step.kernel, (step.configs[config],))
        steps.append(step)
    return ReplayJob(job.cell, replace(job.plan, steps=tuple(steps)), binaries) if differs else None


def pack_jobs(jobs: Sequence[ReplayJob]) -> tuple[list[dict[str, Any]], list[bytes]]:
    """Jobs as JSON, and their distinct images."""
    images: dict[bytes, int] = {}
    packed = []
    for job in jobs:
        binaries = []
        for (step, config), binary in job.binaries.items():
            fields = {name: value for name, value in vars(binary).items() if name != "image"}
            blob = images.setdefault(binary.image, len(images))
            binaries.append({"step": step, "config": config, "blob": blob, "binary": fields})
        packed.append({"cell": asdict(job.cell), "plan": dump(job.plan), "binaries": binaries})
    return packed, list(images)


def unpack_jobs(packed: Sequence[Mapping[str, Any]], blobs: Sequence[bytes]) -> list[ReplayJob]:
    """The inverse of `pack_jobs`. Raises PlanError for a plan that breaks a rule."""
    jobs = []
    for item in packed:
        cell = cell_from_json(item["cell"])
        binaries = {
            (int(e["step"]), int(e["config"])): _binary(e["binary"], blobs[e["blob"]])
            for e in item["binaries"]
        }
        jobs.append(ReplayJob(cell, parse(item["plan"], cell.inputs, cell.outputs), binaries))
    return jobs


def cell_from_json(data: Mapping[str, Any]) -> Cell:
    """A test case from `asdict` through JSON."""
    inputs, outputs = (tuple(map(spec_from_json, data[side])) for side in ("inputs", "outputs"))
    scalars = tuple(Scalar(**one) for one in data["scalars"])
    return Cell(
        data["name"], inputs, outputs, data["values"], tuple(data["scales"]), data["role"], scalars,
        tuple(data["changes"]),
    )  # fmt: skip


def rejection_from_json(data: Mapping[str, Any] | None) -> Rejection | None:
    """A rejection from `asdict` through JSON, or None."""
    return Rejection(**data) if data else None


def _binary(fields: Mapping[str, Any], image: bytes) -> Binary:
    listed = {name: tuple(fields[name]) for name in ("parameters", "unread")} | {
        "paths": tuple(map(tuple, fields["paths"]))
    }
    return Binary(**{**fields, **listed, "image": image})


ATOMICS = "the kernels use atomic operations; each run was compared on its own"
CHECKS = {
    "output_contract": "outputs have the operation's dtype, shape and own memory",
    "wrong_answer": "answers agree with float64",
    "guard_band": "nothing was written outside the buffers",
    "input_mutated": "inputs are bit for bit unchanged",
    "not_deterministic": "a second run with other poison and addresses gave the same bits",
}


@dataclass(frozen=True)
class Checked:
    """The results by test case in the requested order, and the rejection if a required case failed.

    `checks` has one report per guard, `seconds` the time per case.
    """

    cells: tuple[CellResult, ...]
    rejection: Rejection | None
    checks: tuple[Check, ...]
    seconds: dict[str, float] = field(default_factory=dict)


def unreached(cell: Cell) -> CellResult:
    """The result of a test case that was not checked because of a failure."""
    return CellResult(cell.name, cell.role, "skipped", detail="not reached")


def guard_reports(rejection: Rejection | None, atomics: bool) -> tuple[Check, ...]:
    """One report per guard of the replay, also for guards that were not reached."""
    reports = []
    for guard, meaning in CHECKS.items():
        if rejection and rejection.guard == guard:
            reports.append(Check(guard, "fail", rejection.reason))
        elif rejection:
            reports.append(Check(guard, "skipped", f"stopped by {rejection.guard}"))
        elif guard == "not_deterministic" and atomics:
            reports.append(Check(guard, "skipped", ATOMICS))
        else:
            reports.append(Check(guard, "pass", meaning))
    if rejection and rejection.guard not in CHECKS:
        reports.append(Check(rejection.guard, "fail", rejection.reason))
    return tuple(reports)
