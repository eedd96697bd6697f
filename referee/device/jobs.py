"""What the judge sends to the replay worker and what comes back, as data on both sides.

A cell job is a cell, the launch plan recorded for it, and for every launch and configuration of that plan the compiled
kernel. The worker parses the plan again, strictly; nothing it receives is executed but the plan's steps and the cubins.
Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from referee.compiling.binaries import Binary
from referee.device import wire
from referee.ops.spec import Cell, TensorSpec
from referee.plans.plan import LaunchPlan
from referee.plans.plan_parse import dump, parse
from referee.verdict import CellResult, Rejection


@dataclass(frozen=True)
class CellJob:
    """A plan at a cell with its compiled kernels by (step number, configuration number)."""

    cell: Cell
    plan: LaunchPlan
    binaries: Mapping[tuple[int, int], Binary]


@dataclass(frozen=True)
class TaskName:
    """How the worker finds the task: a catalogue or remix op by name, or a user's reference in a file of theirs.

    `function` None lets the file's only function or its `Model` be the reference. The user's code runs in the worker.
    """

    op: str
    file: str | None = None
    function: str | None = None


@dataclass(frozen=True)
class Prepared:
    """A candidate that has been traced and compiled at every cell: all the replay worker needs of it.

    `atomics` says that its kernels use atomic operations, so that bits may differ between runs. `choice` is the frozen
    configuration of each autotuned launch, by step number; the first that compiled where it says nothing.
    """

    task: TaskName
    jobs: tuple[CellJob, ...]
    atomics: bool = False
    choice: Mapping[int, int] = field(default_factory=dict)

    @property
    def bench(self) -> CellJob | None:
        """The job that is timed, if there is one."""
        return next((job for job in self.jobs if job.cell.role == "bench"), None)

    def message(self) -> wire.Message:
        """Everything but the jobs, as JSON."""
        choice = {str(step): config for step, config in self.choice.items()}
        return {"task": asdict(self.task), "atomics": self.atomics, "choice": choice}


def pack_jobs(jobs: Sequence[CellJob]) -> tuple[list[dict[str, Any]], list[bytes]]:
    """Jobs as JSON plus the distinct images."""
    images: dict[bytes, int] = {}
    packed = []
    for job in jobs:
        binaries = []
        for (step, config), binary in job.binaries.items():
            fields = {name: value for name, value in vars(binary).items() if name != "image"}
            binaries.append({"step": step, "config": config, "blob": images.setdefault(binary.image, len(images)), "binary": fields})
        packed.append({"cell": asdict(job.cell), "plan": dump(job.plan), "binaries": binaries})
    return packed, list(images)


def unpack_jobs(packed: Sequence[Mapping[str, Any]], blobs: Sequence[bytes]) -> list[CellJob]:
    """The inverse; raises PlanError for a plan that is not sound for its cell."""
    jobs = []
    for item in packed:
        cell = cell_from_json(item["cell"])
        binaries = {(int(e["step"]), int(e["config"])): _binary(e["binary"], blobs[e["blob"]]) for e in item["binaries"]}
        jobs.append(CellJob(cell, parse(item["plan"], cell.inputs, cell.outputs), binaries))
    return jobs


def cell_from_json(data: Mapping[str, Any]) -> Cell:
    """A cell from `asdict` through JSON."""
    inputs, outputs = (tuple(map(_spec, data[side])) for side in ("inputs", "outputs"))
    return Cell(data["name"], inputs, outputs, data["values"], tuple(data["scales"]), data["role"])


def result_from_json(data: Mapping[str, Any]) -> CellResult:
    """A cell result from `asdict` through JSON."""
    return CellResult(**data)


def rejection_from_json(data: Mapping[str, Any] | None) -> Rejection | None:
    """A rejection from `asdict` through JSON, or None."""
    return Rejection(**data) if data else None


def _binary(fields: Mapping[str, Any], image: bytes) -> Binary:
    listed = {name: tuple(fields[name]) for name in ("parameters", "unread")} | {"paths": tuple(map(tuple, fields["paths"]))}
    return Binary(**{**fields, **listed, "image": image})


def _spec(data: Mapping[str, Any]) -> TensorSpec:
    return TensorSpec(data["name"], tuple(data["shape"]), data["dtype"], tuple(data["strides"]), data["offset"])
