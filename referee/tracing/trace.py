"""The judge's side of tracing: a candidate's source in, one checked launch plan for each cell out, or a rejection.

The worker's answer is data that the candidate could have forged: it is parsed strictly, and its texts are cut to one
printable line. A forged plan gains nothing, because a plan is all that is executed, checked and timed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from referee.ops.spec import Cell
from referee.plans.plan import LaunchPlan
from referee.plans.plan_parse import PlanError, parse
from referee.reading.kernels import KernelError, KernelModule, extract
from referee.sandbox.workers import JobLost
from referee.sandbox.zygote import Limits, Outcome, Zygote
from referee.target import Target
from referee.verdict import Rejection

ENTRY = "referee.tracing.tracer:trace_entry"
SECONDS = 20.0
"""Of processor time."""
PATIENCE = 6.0
"""How many times as long as a trace may take by the clock: others may keep the processors busy, and beside a GPU they go first."""
MEMORY_BYTES = 1 << 30
OUTPUT_BYTES = 16 << 20
MAX_REASON = 300

GUARDS = frozenset(
    {"torch_compute", "needs_value", "device", "state", "module_level", "launch_feature", "output_contract", "plan_size", "trace_error"}
)
_ENDINGS = {
    "crash": "the process crashed",
    "exited": "the process ended without an answer; `run` must return",
    "timeout": "took too long; `run` and the file must only prepare launches",
    "memory": "used more memory than a trace needs",
    "flood": "printed or returned too much; remove prints",
}


def trace(
    zygote: Zygote,
    source: str,
    cells: Sequence[Cell],
    target: Target,
    module: KernelModule | None = None,
    *,
    seconds: float = SECONDS,
    patience: float = PATIENCE,
    early: int | None = None,
    stop: int | None = None,
) -> tuple[LaunchPlan, ...] | Rejection:
    """One plan for each cell, in order, within `seconds` of processor time, and `patience` times as many by the clock. `module` is the
    clean kernel module, cut from the source if not given. The worker tells plans to the descriptor `early` as soon as it has made them, as
    `tracer.trace_entry` says. Time is up at once when something can be read from `stop`.

    Raises ZygoteError if the sandbox cannot be started, JobLost if the worker was ended from outside.
    """
    if module is None:
        try:
            module = extract(source)
        except KernelError as error:
            return Rejection("screen", error.guard, str(error))
    limits = Limits(patience * seconds, MEMORY_BYTES, OUTPUT_BYTES, processor_seconds=seconds)
    outcome = zygote.run(ENTRY, request(source, cells, target), limits=limits, fds=[] if early is None else [early], stop=stop)
    return read_answer(outcome, cells, module)


def request(source: str, cells: Sequence[Cell], target: Target) -> bytes:
    """The payload for the worker: no values, no names of cells, only shapes."""
    listed = [{"inputs": [asdict(spec) for spec in cell.inputs], "outputs": len(cell.outputs)} for cell in cells]
    return json.dumps({"source": source, "target": target.to_json(), "cells": listed}).encode()


def read_answer(outcome: Outcome, cells: Sequence[Cell], module: KernelModule) -> tuple[LaunchPlan, ...] | Rejection:
    """The plans in a worker's answer, or why there are none. Raises JobLost."""
    if outcome.killed_outside:
        raise JobLost(f"the trace worker was lost: {_one_line(outcome.detail)}")
    if outcome.status != "ok":
        detail = _one_line(outcome.detail)
        return _rejected(outcome.status, f"{_ENDINGS.get(outcome.status, outcome.status)}{f' ({detail})' if detail else ''}")
    try:
        answer = json.loads(outcome.data)
    except (ValueError, RecursionError):
        return _rejected("trace_error", "the traced process sent an unreadable answer")
    if isinstance(answer, dict) and isinstance(answer.get("rejection"), dict):
        return _read_rejection(answer["rejection"], cells)
    plans = answer.get("plans") if isinstance(answer, dict) else None
    if not isinstance(plans, list) or len(plans) != len(cells):
        return _rejected("trace_error", "the traced process sent an unreadable answer")
    parsed: list[LaunchPlan] = []
    for cell, data in zip(cells, plans, strict=True):
        try:
            parsed.append(parse(data, cell.inputs, cell.outputs, module))
        except PlanError as error:
            return _rejected(error.guard, f"{_at(cell)}{_one_line(str(error))}")
    return tuple(parsed)


def _read_rejection(data: dict[str, Any], cells: Sequence[Cell]) -> Rejection:
    guard, reason, index = data.get("guard"), data.get("reason"), data.get("cell")
    if not isinstance(guard, str) or guard not in GUARDS or not isinstance(reason, str):
        return _rejected("trace_error", "the traced process sent an unreadable answer")
    where = _at(cells[index]) if type(index) is int and 0 <= index < len(cells) else ""
    return _rejected(guard, where + _one_line(reason))


def _at(cell: Cell) -> str:
    shapes = ", ".join(f"{spec.name} {list(spec.shape)} {spec.dtype}" for spec in cell.inputs[:2])
    return f"at {shapes}: "


def _rejected(guard: str, reason: str) -> Rejection:
    return Rejection("trace", guard, reason)


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in " ".join(text.split()))[:MAX_REASON]
