"""The judge's half of the CPU path: executes launch plans with Triton's interpreter in a sandboxed
worker.

The judge makes the arena in shared memory, sends kernel text and plans, and reads the arena once
the worker has ended. The worker never receives expected values. Limits: one core; programs run one
after the other, forwards or backwards, or a few interleaved (`Execution.interleaving_seed`).
Nothing here measures speed.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from referee.concurrency import CancelToken
from referee.interpreter.spin_loops import find_spin_loop
from referee.plans.arena import NAN, FillPattern, Layout, damage, layout, prepare, window
from referee.plans.plan import Copy, LaunchPlan
from referee.sandbox.zygote import JobLost, MachineBusy
from referee.verdict import Rejection

if TYPE_CHECKING:
    from torch import Tensor

    from referee.sandbox.zygote import Outcome, Zygote

ENTRY = "referee.interpreter.job:interpret_entry"
HEADER_BYTES = 4096
GUARD_BYTES = 4096
"""Bytes between buffers. The worker checks every address, and these bands let the judge check too.
"""
WORKER_MEMORY = 2 << 30
SHADOW_FACTOR = 100
"""Bytes of worker memory per arena byte for shadow memory, where a few programs use little of it.
"""
ANSWER_BYTES = 1 << 20
# The limit by the job's clock is a multiple of the processor seconds, because the worker also waits
# for its memory and its disk.
PATIENCE = 10.0
UNDECIDED = frozenset({"timeout", "memory_limit"})
"""Guards of an interpreter that may be too slow or too small; alone they reject nothing."""
WAITS = (
    "`{}` waits for another program, which need not run before this one ends: use a second launch"
)
OWN_TENSORS = "write only to new tensors, and within their bounds"
SLOW = "look for a loop that never ends, or take larger blocks"


class InterpreterUnsupported(RuntimeError):
    """The kernel needs a feature that only a GPU has, so its correctness is unknown."""


@dataclass(frozen=True)
class Execution:
    """One run of a plan. `inputs` are CPU tensors in the plan's order; the worker gets copies.

    `reverse` changes every pointer, `backwards` the order of the programs, `config` picks a launch
    configuration. With `interleaving_seed`, programs switch at their atomics. `relaxed` contracts
    products and reassociates reductions, as a compiler may. `open_lanes` and `sample_seed` are as
    in `Run`. In a sampled run inputs with fewer rows than the plan's repeat, and there are no
    outputs.
    """

    plan: LaunchPlan
    inputs: tuple[Tensor, ...]
    poison: FillPattern = NAN
    reverse: bool = False
    backwards: bool = False
    config: int = 0
    interleaving_seed: int | None = None
    relaxed: bool = False
    open_lanes: bool = False
    sample_seed: int | None = None


@dataclass(frozen=True)
class Executed:
    """The outputs of a run without forbidden accesses, as fresh contiguous tensors."""

    outputs: tuple[Tensor, ...]


class _Shared:
    """The arenas of several runs in one sealed memory file, which a worker cannot resize."""

    def __init__(self, executions: Sequence[Execution]) -> None:
        import torch

        self.places = [
            layout(one.plan, reverse=one.reverse, guard=GUARD_BYTES) for one in executions
        ]
        self.starts: list[int] = []
        end = HEADER_BYTES
        for places in self.places:
            self.starts.append(end)
            end += places.total
        self.size = end
        self.fd = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, end)
        fcntl.fcntl(
            self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        )
        self.region = torch.frombuffer(mmap.mmap(self.fd, end), dtype=torch.uint8)
        self.periodic: list[dict[int, int]] = [{} for _ in executions]
        for index, one in enumerate(executions):
            arena, places = self.arena(index), self.places[index]
            if one.sample_seed is None:
                prepare(arena, places, one.plan, one.inputs, one.poison)
            else:
                self.periodic[index] = _write_few(arena, places, one.plan, one.inputs)

    def arena(self, index: int) -> Tensor:
        return self.region[self.starts[index] : self.starts[index] + self.places[index].total]

    def begun(self) -> int:
        import torch

        return int(self.region[:8].view(torch.int64))


def _write_few(
    region: Tensor, places: Layout, plan: LaunchPlan, inputs: Sequence[Tensor]
) -> dict[int, int]:
    """Writes inputs; returns, by buffer, the period in bytes of inputs with fewer rows than the
    plan's.

    It touches nothing else, so most of a large region takes no memory and no time.
    """
    copied = {step.source.buffer for step in plan.steps if isinstance(step, Copy)}
    periods = {}
    for view, rows in zip(plan.inputs, inputs, strict=True):
        target = window(region, places, view)
        if target.shape == rows.shape:
            target.copy_(rows)
        elif view.buffer not in copied and view.offset == 0 and target.is_contiguous():
            target[: len(rows)].copy_(rows)
            periods[view.buffer] = rows.numel() * rows.element_size()
        else:
            for start in range(0, len(target), len(rows)):
                piece = target[start : start + len(rows)]
                piece.copy_(rows[: len(piece)])
    return periods


def execute(
    zygote: Zygote,
    text: str,
    executions: Sequence[Execution],
    *,
    seconds: float,
    unread: frozenset[int] = frozenset(),
    cancel: CancelToken | None = None,
) -> list[Executed | Rejection]:
    """Runs `executions` in order in one worker.

    `seconds` of processor time bound all runs together; a readable `cancel` ends them. `text` is the
    clean kernel module, `unread` as in `kernel_syntax.rewrite_kernels`. The result ends with the
    first rejection. Raises JobLost or InterpreterUnsupported if the candidate is not at fault.
    """
    from referee.interpreter.request import Request, Run
    from referee.sandbox.zygote import Limits

    shared = _Shared(executions)
    try:
        runs = tuple(
            Run(
                plan=e.plan,
                places=places,
                start=start,
                config=e.config,
                backwards=e.backwards,
                interleaving_seed=e.interleaving_seed,
                relaxed=e.relaxed,
                open_lanes=e.open_lanes,
                sample_seed=e.sample_seed,
                periodic_inputs=periods,
            )
            for e, places, start, periods in zip(
                executions, shared.places, shared.starts, shared.periodic, strict=True
            )
        )
        sampled = any(execution.sample_seed is not None for execution in executions)
        memory = WORKER_MEMORY + (SHADOW_FACTOR if sampled else 1) * shared.size
        limits = Limits(PATIENCE * seconds, memory, ANSWER_BYTES, processor_seconds=seconds)
        wanted = pickle.dumps(Request(text, runs, shared.size, unread))
        outcome = zygote.run(ENTRY, wanted, limits=limits, fds=(shared.fd,), cancel=cancel)
        done, failure = _answer(outcome, len(executions), shared.begun(), seconds)
        if failure and failure.guard == "timeout" and (loop := find_spin_loop(text)):
            failure = replace(failure, reason=failure.reason.replace(SLOW, WAITS.format(loop)))
        results: list[Executed | Rejection] = []
        for index in range(done):
            if executions[index].sample_seed is not None:
                # Only the worker can report errors of such a run, and it reported none.
                results.append(Executed(()))
                continue
            results.append(_collect(executions[index], shared.places[index], shared.arena(index)))
            if isinstance(results[-1], Rejection):
                return results
        return [*results, failure] if failure else results
    finally:
        os.close(shared.fd)


def _answer(
    outcome: Outcome, count: int, begun: int, seconds: float
) -> tuple[int, Rejection | None]:
    """The number of completed runs, and the reason why the next one did not complete."""
    if outcome.killed_outside:
        raise JobLost(f"the interpreter worker was lost: {outcome.detail}")
    if outcome.status == "starved":
        raise MachineBusy(outcome.detail)
    if outcome.status == "ok":
        answers = _parsed(outcome.data, count)
        failures = [answer for answer in answers if answer is not None]
        if not failures:
            return len(answers), None
        return len(answers) - 1, _explained(failures[0]["kind"], failures[0]["message"])
    done = max(0, min(begun, count) - 1)
    guard, reason = "kernel_crash", f"the kernel crashed the worker ({outcome.detail})"
    match outcome.status:
        case "timeout":
            guard = "timeout"
            reason = f"the kernel did not end within {seconds:g} s of the CPU path: {SLOW}"
        case "memory":
            guard = "memory_limit"
            reason = "the kernel took more memory than the CPU path allows: use smaller blocks"
        case "flood":
            guard, reason = "output_flood", "the kernel printed too much: remove prints"
    return done, Rejection("correct", guard, reason)


def _parsed(data: bytes, count: int) -> list[dict[str, str] | None]:
    try:
        answers: Any = json.loads(data)
    except (ValueError, RecursionError):
        raise JobLost("the interpreter worker gave a malformed answer") from None
    if not isinstance(answers, list) or not 0 < len(answers) <= max(count, 1):
        raise JobLost("the interpreter worker gave a malformed answer")
    for index, answer in enumerate(answers):
        last = index == len(answers) - 1
        texts = [answer.get("kind"), answer.get("message")] if isinstance(answer, dict) else [None]
        fails = last and all(isinstance(text, str) for text in texts)
        passes = answer is None and (not last or len(answers) == count)
        if not fails and not passes:
            raise JobLost("the interpreter worker gave a malformed answer")
    return answers


def _explained(kind: str, message: str) -> Rejection:
    if kind == "unsupported":
        raise InterpreterUnsupported(f"Triton's interpreter cannot run {message}")
    if kind == "out_of_bounds":
        return Rejection("correct", "out_of_bounds", f"{message}: check offsets and masks")
    if kind == "input_changed":
        return Rejection("honest", "input_mutated", f"{message}: {OWN_TENSORS}")
    if kind == "unwritten":
        advice = "fill the tensor first (torch.zeros), or mask the load"
        return Rejection("honest", "not_deterministic", f"{message}: {advice}")
    if kind == "race":
        advice = ": check offsets and masks, or use atomics, a barrier or a second launch"
        # Some messages already contain the advice.
        helps = "add tl.debug_barrier()" in message
        return Rejection("honest", "not_deterministic", f"{message}{'' if helps else advice}")
    return Rejection("correct", "kernel_error", f"the kernel failed while running: {message}")


def _collect(execution: Execution, places: Layout, arena: Tensor) -> Executed | Rejection:
    found = damage(arena, places, execution.plan, execution.inputs, execution.poison)
    if found is None:
        outputs = execution.plan.outputs
        return Executed(tuple(window(arena, places, view).clone() for view in outputs))
    if found.kind == "input":
        index = execution.plan.buffers[found.buffer].input
        reason = f"input {index} was changed ({found.count} bytes): {OWN_TENSORS}"
        return Rejection("honest", "input_mutated", reason)
    side = "before" if found.offset < 0 else "from"
    where = f"{abs(found.offset)} bytes {side} the start of buffer {found.buffer}"
    fault = f"{found.count} bytes outside every buffer were overwritten, {where}"
    return Rejection("correct", "guard_band", f"{fault}: check the store's mask")
