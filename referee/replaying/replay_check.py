"""Checks one test case by replay: right answers, no other memory changed, the same bits twice.

The candidate runs first; eager PyTorch and float64 follow. Runs in the replay worker.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

import torch
from torch import Tensor

from referee.answers.compare import compare
from referee.ops.cells import of_mixed_values
from referee.ops.spec import Cell
from referee.ops.task import Task
from referee.plans.arena import LEFT_BEHIND, NAN, ORDINARY, Damage, layout, second_fill_pattern
from referee.plans.plan import LaunchPlan
from referee.replaying.driver import ILLEGAL_ADDRESS, CudaError, Driver
from referee.replaying.replay import Choice, PlanFault, Region, Runner, differ, slab_bytes
from referee.verdict import CellResult, Rejection

CANDIDATE_SECONDS = 10.0
REFEREE_SECONDS = 120.0

HUGE_ELEMENTS, EDGE_ROWS, SECRET_ROWS = 1 << 30, 256, 4096
WRAPPING_ELEMENTS = 1 << 31
KEPT_BYTES = 1 << 32
"""Bytes above which both runs of a capability case share one region."""
MEMORY_SHARE = 0.7
ONCE_MORE = 0.15
"""Share of the required untimed test cases that run once more in used memory."""

WRAPPED = (
    "{} bytes outside every buffer were overwritten: a tensor of 2^31 elements needs "
    "offsets in int64 (`.to(tl.int64)`)"
)

Progress = Callable[[str, float, Literal["candidate", "referee"]], None]


@dataclass(frozen=True)
class Host:
    """The place where plans run: torch device, driver (None on the CPU), and progress reports."""

    device: str
    driver: Driver | None
    progress: Progress

    def stream(self) -> int:
        """The handle of torch's current stream."""
        return torch.cuda.current_stream().cuda_stream if self.driver else 0

    def wait(self) -> None:
        """Waits for the device. Raises PlanFault if a kernel failed."""
        if self.driver:
            try:
                self.driver.synchronize()
            except CudaError as error:
                raise as_fault(error) from error


@dataclass(frozen=True)
class CellOutcome:
    """One test case's result, and the rejection that its failure means for a required case."""

    result: CellResult
    rejection: Rejection | None = None


FAULTS = (PlanFault, CudaError, torch.AcceleratorError)


def as_fault(error: PlanFault | CudaError | torch.AcceleratorError) -> PlanFault:
    """The candidate's fault. After an error that torch raised, the context is lost."""
    if isinstance(error, PlanFault):
        return error
    if isinstance(error, CudaError):
        illegal, sticky = error.code == ILLEGAL_ADDRESS, error.sticky
        text = error.meaning or error.name
    else:
        text, sticky = first_line(error), True
        illegal = "illegal memory" in text
    guard = "out_of_bounds" if illegal else "kernel_error"
    return PlanFault(guard, f"the GPU stopped the kernel: {text}", sticky=sticky)


def out_of_memory(error: torch.OutOfMemoryError) -> str:
    """The message when the device has less memory than the referee needs; no kernel is at fault."""
    return (
        "this GPU has too little free memory: end other programs on it, or take one with "
        f"more ({first_line(error)})"
    )


def first_line(error: BaseException) -> str:
    """The first non-empty line of an error's text, shortened."""
    return next(
        (line.strip()[:200] for line in str(error).splitlines() if line.strip()), "no message"
    )


def check_cell(
    host: Host, runner: Runner, task: Task, cell: Cell, seed: int, *, choice: Choice, atomics: bool
) -> CellOutcome:
    """Replays twice and compares. The timed case and a few secret ones run once more, in the first
    run's memory.

    With `atomics` the order of additions may differ between runs, so each run is compared with the
    reference instead of bit by bit. Raises PlanFault if the plan cannot run, and
    torch.OutOfMemoryError.
    """
    host.progress(f"drawing inputs for {cell.name}", REFEREE_SECONDS, "referee")
    inputs = task.inputs(cell, seed, host.device)
    lead = wrapping_room(host, runner.plan, cell)
    regions: list[Region] = []
    runs: list[list[Tensor]] = []
    # A user's memory holds ordinary values from the timed kernel's earlier calls.
    other = ORDINARY if cell.role == "bench" else second_fill_pattern(cell.name)
    for reverse, poison in ((False, NAN), (True, other)):
        places, slab = layout(runner.plan, reverse=reverse, lead=lead), None
        if runs and cell.role == "capability" and slab_bytes(places) > KEPT_BYTES:
            # The other order gives other addresses too. A second allocation of that much memory
            # takes longer than the run.
            runs, slab = [[output.clone() for output in run] for run in runs], regions[0].bytes
        # Otherwise both regions stay allocated, so that the second run has other addresses.
        regions.append(Region(runner.plan, host.device, places=places, slab=slab))
        regions[-1].fill(inputs, poison)
        host.wait()
        host.progress(f"replaying {cell.name}", CANDIDATE_SECONDS, "candidate")
        queue(host, runner, regions[-1], choice)
        host.wait()
        host.progress(f"inspecting {cell.name}", REFEREE_SECONDS, "referee")
        if found := regions[-1].damage():
            stage, guard, reason = describe(found, runner.plan, cell)
            wrapped = lead and found.kind == "guard"
            return _failed(cell, stage, guard, WRAPPED.format(found.count) if wrapped else reason)
        runs.append(outputs_of(regions[-1]))
    same = not any(bool(differ(left, right)) for left, right in zip(*runs, strict=True))
    outputs = runs[: 1 + atomics]
    if slab is None:
        outputs = [[tensor.clone() for tensor in run] for run in outputs]
    later = None
    if _once_more(cell, seed):
        later = _after_a_call(host, runner, task, cell, seed, regions[0], choice)
    del regions, runs
    results = [compare(*sampled(task, cell, inputs, run, seed)) for run in outputs]
    worst = next((result for result in results if result.status != "pass"), results[0])
    if worst.status != "pass":
        return _wrong(cell, worst)
    if not same and not atomics:
        fault = "a race between programs, or a read of memory that was never written"
        reason = f"two runs on the same inputs gave different bits: {fault}"
        return _failed(cell, "honest", "not_deterministic", reason)
    return later or CellOutcome(worst)


def _once_more(cell: Cell, seed: int) -> bool:
    return cell.role == "bench" or (
        cell.role == "required" and random.Random(f"{seed} {cell.name}").random() < ONCE_MORE
    )


def _after_a_call(
    host: Host, runner: Runner, task: Task, cell: Cell, seed: int, region: Region, choice: Choice
) -> CellOutcome | None:
    """The failure with other values in the memory of an earlier call, or None.

    At the timed case the values have many magnitudes.
    """
    before, cell = region.inputs, of_mixed_values(task.op, cell) if cell.role == "bench" else cell
    inputs = task.inputs(cell, seed + 1, host.device)
    if cell.values == "normal":
        inputs = tuple(_begun_alike(one, other) for one, other in zip(before, inputs, strict=True))
    region.change_inputs(inputs)
    result = _replayed(host, runner, task, cell, region, choice)
    if isinstance(result, CellOutcome) or result.status == "pass":
        return result if isinstance(result, CellOutcome) else None
    region.fill(inputs, NAN)
    fresh = _replayed(host, runner, task, cell, region, choice)
    if isinstance(fresh, CellOutcome):
        return fresh
    if fresh.status == "pass":
        return _failed(cell, "honest", "not_deterministic", f"{LEFT_BEHIND} ({result.detail})")
    return _wrong(cell, fresh)


def _wrong(cell: Cell, result: CellResult) -> CellOutcome:
    reason = f"at {cell.name}: {result.detail}"
    return CellOutcome(result, Rejection("correct", "wrong_answer", reason))


def _begun_alike(earlier: Tensor, later: Tensor) -> Tensor:
    """Rows that begin like those of an earlier call and continue differently.

    They catch a kernel that recognises a row by its first elements.
    """
    if later.dim() < 2:
        return later
    half = later.shape[-1] // 2
    return torch.cat([earlier[..., :half], later[..., half:]], dim=-1)


def _replayed(
    host: Host, runner: Runner, task: Task, cell: Cell, region: Region, choice: Choice
) -> CellResult | CellOutcome:
    """The comparison of one run, or the outcome of a run that wrote outside its outputs."""
    host.progress(f"replaying {cell.name} again", CANDIDATE_SECONDS, "candidate")
    queue(host, runner, region, choice)
    host.wait()
    host.progress(f"inspecting {cell.name}", REFEREE_SECONDS, "referee")
    if found := region.damage():
        return _failed(cell, *describe(found, runner.plan, cell))
    outputs = tuple(tensor.clone() for tensor in outputs_of(region))
    return compare(task, cell, region.inputs, outputs)


def wrapping_room(host: Host, plan: LaunchPlan, cell: Cell) -> int:
    """Bytes before every buffer of a huge test case, so that an offset that wraps at 31 bits stays
    in kmint's memory.

    Such a kernel then fails by its accesses, and the GPU context survives. 0 for other cases, and
    if the device has no room.
    """
    specs = (*cell.inputs, *cell.outputs)
    if host.device == "cpu" or max(prod(spec.shape) for spec in specs) < WRAPPING_ELEMENTS:
        return 0
    lead = WRAPPING_ELEMENTS * max(getattr(torch, spec.dtype).itemsize for spec in specs)
    needed = slab_bytes(layout(plan, lead=lead)) + sum(buffer.nbytes for buffer in plan.buffers)
    return lead if needed <= MEMORY_SHARE * free_bytes() else 0


def free_bytes() -> int:
    """Bytes that can still be allocated: the device's free memory and torch's unused cache."""
    cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return int(torch.cuda.mem_get_info()[0]) + cached


def sampled(
    task: Task, cell: Cell, inputs: Sequence[Tensor], outputs: Sequence[Tensor], seed: int
) -> tuple[Task, Cell, Sequence[Tensor], Sequence[Tensor]]:
    """The rows to compare: all, or a few thousand rows of a huge capability case with independent
    rows.

    They are the first and last rows, those around every multiple of a 31-bit offset, and secret
    ones. The second run shows that the other rows were written, and equally twice.
    """
    rows = outputs[0].shape[0] if outputs and outputs[0].dim() else 0
    elements = max((tensor.numel() for tensor in (*inputs, *outputs)), default=0)
    if not task.rowwise or cell.role != "capability" or elements < HUGE_ELEMENTS:
        return task, cell, inputs, outputs
    offsets = (end * rows // elements for end in range(0, elements + 1, 1 << 31))
    around = torch.tensor([0, rows, *offsets])[:, None] + torch.arange(-EDGE_ROWS, EDGE_ROWS)
    secret = torch.Generator().manual_seed(seed & (1 << 63) - 1)
    inner = torch.randint(rows, (SECRET_ROWS,), generator=secret)
    chosen = torch.cat([around.flatten(), inner]).sort().values
    return task, *some_rows(cell, inputs, outputs, chosen[(0 <= chosen) & (chosen < rows)])


def some_rows(
    cell: Cell, inputs: Sequence[Tensor], outputs: Sequence[Tensor], chosen: Tensor
) -> tuple[Cell, Sequence[Tensor], Sequence[Tensor]]:
    """The test case with these rows only, in all tensors with as many rows as the first output."""
    rows, at = outputs[0].shape[0], chosen.to(outputs[0].device)

    def pick(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(
            one.index_select(0, at) if one.shape[:1] == (rows,) else one for one in tensors
        )

    shorter = tuple(replace(spec, shape=(len(at), *spec.shape[1:])) for spec in cell.outputs)
    return replace(cell, outputs=shorter), pick(inputs), pick(outputs)


def queue(host: Host, runner: Runner, region: Region, choice: Choice) -> None:
    """Queues the plan once on a region. Raises PlanFault if the driver refuses a launch."""
    try:
        runner.bind(region, choice).run(host.stream())
    except CudaError as error:
        raise as_fault(error) from error


def outputs_of(region: Region) -> list[Tensor]:
    """The plan's outputs in a region's memory."""
    return [region.tensor(view) for view in region.plan.outputs]


def describe(
    found: Damage, plan: LaunchPlan, cell: Cell
) -> tuple[Literal["correct", "honest"], str, str]:
    """The stage, the guard and the one-line reason for a forbidden write."""
    source = plan.buffers[found.buffer].input
    is_output = any(view.buffer == found.buffer for view in plan.outputs)
    name = "the output" if is_output else "a scratch tensor"
    if source is not None:
        name = f"the input {cell.inputs[source].name}"
    if found.kind == "input":
        changed = f"the kernel changed {name} ({found.count} bytes, first at byte {found.offset})"
        advice = "write only to new tensors, and within their bounds"
        return "honest", "input_mutated", f"{changed}: {advice}"
    beyond = found.offset - plan.buffers[found.buffer].nbytes
    before = found.offset < 0
    where = f"{-found.offset} bytes before" if before else f"{beyond} bytes after the end of"
    fault = f"{found.count} bytes outside every buffer were overwritten, first {where} {name}"
    return "correct", "guard_band", f"{fault}: check the store's mask"


def _failed(
    cell: Cell, stage: Literal["correct", "honest"], guard: str, reason: str
) -> CellOutcome:
    return CellOutcome(
        CellResult(cell.name, cell.role, "fail", detail=reason),
        Rejection(stage, guard, f"at {cell.name}: {reason}"),
    )
