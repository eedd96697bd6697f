"""The CPU path, judge's side: execute launch plans in a sandboxed worker with Triton's interpreter, on memory shared with it.

The judge makes the arena, sends clean kernel text and plans, and reads the arena once the worker is dead. The worker is told no
expected values. Limits: one core, programs run one after the other, in either direction, or a few in turns (`Execution.turns`), and
nothing here says anything of speed.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from referee.plans.arena import NAN, Layout, Poison, damage, layout, prepare, window
from referee.plans.plan import Copy, LaunchPlan
from referee.sandbox.workers import JobLost
from referee.verdict import Rejection

if TYPE_CHECKING:
    from torch import Tensor

    from referee.sandbox.zygote import Outcome, Zygote

ENTRY = "referee.interpreter.job:interpret_entry"
HEADER_BYTES = 4096
WORKER_MEMORY = 2 << 30
MARKS = 100
"""So many bytes are set aside for every byte of a large buffer of which a few programs use little (`marks.py`)."""
ANSWER_BYTES = 1 << 20
# A kernel never waits for anything: it gets seconds of processor time, and so many times as long where it has to share the processor.
PATIENCE = 10.0
UNDECIDED = frozenset({"timeout", "memory_limit"})
"""Guards that say nothing of a kernel which runs elsewhere too: a right one may be slow in an interpreter, or too large for it."""
SLOW = "look for a loop that never ends, or take larger blocks"


class InterpreterUnsupported(RuntimeError):
    """The kernel needs something that only a GPU runs; nothing is known about its correctness."""


@dataclass(frozen=True)
class Execution:
    """One run of a plan. `inputs` are CPU tensors in the plan's order; they are copied, never shared.

    `reverse` changes every pointer, `backwards` the order in which programs run, `config` picks a launch configuration. With `turns`, a
    seed, programs take turns at their atomics. With `relaxed` products are added unrounded, and reductions combine in a mixed order, as a
    compiler may. `open_lanes` and `picked` as in `Run`. Where programs are picked, inputs of fewer rows than the plan's come again and
    again, and there are no outputs.
    """

    plan: LaunchPlan
    inputs: tuple[Tensor, ...]
    poison: Poison = NAN
    reverse: bool = False
    backwards: bool = False
    config: int = 0
    turns: int | None = None
    relaxed: bool = False
    open_lanes: bool = False
    picked: int | None = None


@dataclass(frozen=True)
class Executed:
    """The outputs of a run that touched nothing it should not have, as fresh contiguous tensors."""

    outputs: tuple[Tensor, ...]


class _Shared:
    """The arenas of several runs, one after the other in a sealed memory file that a worker can map but not resize."""

    def __init__(self, executions: Sequence[Execution]) -> None:
        import torch

        self.places = [layout(execution.plan, reverse=execution.reverse) for execution in executions]
        self.starts: list[int] = []
        end = HEADER_BYTES
        for places in self.places:
            self.starts.append(end)
            end += places.total
        self.size = end
        self.fd = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, end)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self.region = torch.frombuffer(mmap.mmap(self.fd, end), dtype=torch.uint8)
        self.again: list[dict[int, int]] = []
        for index, execution in enumerate(executions):
            if execution.picked is None:
                prepare(self.arena(index), self.places[index], execution.plan, execution.inputs, execution.poison)
                self.again.append({})
            else:
                self.again.append(_write_few(self.arena(index), self.places[index], execution.plan, execution.inputs))

    def arena(self, index: int) -> Tensor:
        return self.region[self.starts[index] : self.starts[index] + self.places[index].total]

    def begun(self) -> int:
        """How many runs the worker says it began."""
        import torch

        return int(self.region[:8].view(torch.int64))


def _write_few(region: Tensor, places: Layout, plan: LaunchPlan, inputs: Sequence[Tensor]) -> dict[int, int]:
    """Writes inputs, and gives after how many bytes those come again, by buffer, that have fewer rows than the plan's.

    Nothing else is touched: most of a large region then takes no memory, and no time.
    """
    copied = {step.source.buffer for step in plan.steps if isinstance(step, Copy)}
    again = {}
    for view, rows in zip(plan.inputs, inputs, strict=True):
        target = window(region, places, view)
        if target.shape == rows.shape:
            target.copy_(rows)
        elif view.buffer not in copied and view.offset == 0 and target.is_contiguous():
            target[: len(rows)].copy_(rows)
            again[view.buffer] = rows.numel() * rows.element_size()
        else:
            for start in range(0, len(target), len(rows)):
                piece = target[start : start + len(rows)]
                piece.copy_(rows[: len(piece)])
    return again


def execute(
    zygote: Zygote,
    text: str,
    executions: Sequence[Execution],
    *,
    seconds: float,
    unread: frozenset[int] = frozenset(),
    stop: int | None = None,
) -> list[Executed | Rejection]:
    """Runs `executions` in order in one worker, which gets `seconds` of processor time for all of them, or until `stop` can be read.

    `text` is the clean kernel module, and `unread` as in `logic.elementwise`. The result ends with the first rejection. Raises JobLost
    or InterpreterUnsupported when the candidate is not to blame.
    """
    from referee.interpreter.request import Request, Run
    from referee.sandbox.zygote import Limits

    shared = _Shared(executions)
    try:
        runs = tuple(
            Run(e.plan, places, start, e.config, e.backwards, e.turns, e.relaxed, e.open_lanes, e.picked, again)
            for e, places, start, again in zip(executions, shared.places, shared.starts, shared.again, strict=True)
        )
        memory = WORKER_MEMORY + (MARKS if any(e.picked is not None for e in executions) else 1) * shared.size
        limits = Limits(PATIENCE * seconds, memory, ANSWER_BYTES, processor_seconds=seconds)
        outcome = zygote.run(ENTRY, pickle.dumps(Request(text, runs, shared.size, unread)), limits=limits, fds=(shared.fd,), stop=stop)
        done, failure = _answer(outcome, len(executions), shared.begun(), seconds)
        results: list[Executed | Rejection] = []
        for index in range(done):
            if executions[index].picked is not None:
                # What such a run does wrong only the worker can tell, and it has said nothing.
                results.append(Executed(()))
                continue
            results.append(_collect(executions[index], shared.places[index], shared.arena(index)))
            if isinstance(results[-1], Rejection):
                return results
        return [*results, failure] if failure else results
    finally:
        os.close(shared.fd)


def _answer(outcome: Outcome, count: int, begun: int, seconds: float) -> tuple[int, Rejection | None]:
    """How many runs completed, and why the next one did not."""
    if outcome.killed_outside:
        raise JobLost(f"the interpreter worker was lost: {outcome.detail}")
    if outcome.status == "ok":
        answers = _parsed(outcome.data, count)
        failures = [answer for answer in answers if answer is not None]
        if not failures:
            return len(answers), None
        return len(answers) - 1, _explained(failures[0]["kind"], failures[0]["message"])
    done = max(0, min(begun, count) - 1)
    reasons = {
        "timeout": ("timeout", f"the kernel did not end within {seconds:g} s of the CPU path: {SLOW}"),
        "memory": ("memory_limit", "the kernel took more memory than the CPU path allows: use smaller blocks"),
        "flood": ("output_flood", "the kernel printed too much: remove prints"),
    }
    guard, reason = reasons.get(outcome.status, ("kernel_crash", f"the kernel crashed the worker ({outcome.detail})"))
    return done, Rejection("correct", guard, reason)


def _parsed(data: bytes, count: int) -> list[dict[str, str] | None]:
    answers: Any = json.loads(data)
    if not isinstance(answers, list) or not 0 < len(answers) <= max(count, 1):
        raise JobLost("the interpreter worker gave a malformed answer")
    for index, answer in enumerate(answers):
        last = index == len(answers) - 1
        if answer is None and (not last or len(answers) == count):
            continue
        if last and isinstance(answer, dict) and all(isinstance(answer.get(key), str) for key in ("kind", "message")):
            continue
        raise JobLost("the interpreter worker gave a malformed answer")
    return answers


def _explained(kind: str, message: str) -> Rejection:
    if kind == "unsupported":
        raise InterpreterUnsupported(f"Triton's interpreter cannot run {message}")
    if kind == "out_of_bounds":
        return Rejection("correct", "out_of_bounds", f"{message}: check offsets and masks")
    if kind == "input_changed":
        return Rejection("honest", "input_mutated", f"{message}: write only to new tensors, and within their bounds")
    if kind == "unwritten":
        return Rejection("honest", "not_deterministic", f"{message}: fill the tensor first (torch.zeros), or mask the load")
    if kind == "race":
        # Some of what is found says itself what helps.
        helps = "add tl.debug_barrier()" in message
        reason = message if helps else f"{message}: check offsets and masks, or use atomics, a barrier or a second launch"
        return Rejection("honest", "not_deterministic", reason)
    return Rejection("correct", "kernel_error", f"the kernel failed while running: {message}")


def _collect(execution: Execution, places: Layout, arena: Tensor) -> Executed | Rejection:
    found = damage(arena, places, execution.plan, execution.inputs, execution.poison)
    if found is None:
        return Executed(tuple(window(arena, places, view).clone() for view in execution.plan.outputs))
    if found.kind == "input":
        index = execution.plan.buffers[found.buffer].input
        reason = f"input {index} was changed ({found.count} bytes): write only to new tensors, and within their bounds"
        return Rejection("honest", "input_mutated", reason)
    where = f"{abs(found.offset)} bytes {'before' if found.offset < 0 else 'from'} the start of buffer {found.buffer}"
    return Rejection("correct", "guard_band", f"{found.count} bytes outside every buffer were overwritten, {where}: check the store's mask")
