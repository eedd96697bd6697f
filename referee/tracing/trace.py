"""The judge's side of tracing: a candidate's source in, one checked launch plan for each cell out,
or a rejection.

The worker's answer is data that the candidate could have forged: it is parsed strictly, and its
texts are cut to one printable line. A forged plan gains nothing, because a plan is all that is
executed, checked and timed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from referee.concurrency import CancelToken
from referee.ops.spec import Cell
from referee.plans.plan import LaunchPlan
from referee.plans.plan_check import reordered_outputs
from referee.plans.plan_parse import PlanError, parse
from referee.reading.kernels import KernelError, KernelModule, extract
from referee.report import Domain
from referee.sandbox.zygote import JobLost, Limits, MachineBusy, Outcome, Zygote
from referee.target import Target
from referee.verdict import Rejection

ENTRY = "referee.tracing.tracer:trace_entry"
SECONDS = 20.0
"""Seconds of processor time for one trace."""
PATIENCE = 6.0
"""Factor on `SECONDS` for the time by the job's clock, which leaves out waits for a processor."""
MEMORY_BYTES = 1 << 30
OUTPUT_BYTES = 16 << 20
MAX_REASON = 300
MOST_TEXTS = 8

Outcomes = dict[Cell, tuple[int, ...]]
"""Bits of every decision on sizes, for each cell (`reading/size_decisions.py`)."""

MISSING = "missing_module"
"""Guard of a file that cannot be traced without a module. It is no fault of the file."""
GUARDS = frozenset(
    {"torch_compute", "needs_value", "device", "state", "module_level", "launch_feature", "output_contract", "plan_size", "trace_error",
     MISSING}
)  # fmt: skip
_ENDINGS = {
    "crash": "the process crashed",
    "exited": "the process ended without an answer; `run` must return",
    "timeout": "took too long; `run` and the file must only prepare launches",
    "memory": "used more memory than a trace needs",
    "flood": "printed or returned too much; remove prints",
}

_UNREADABLE = Rejection("trace", "trace_error", "the traced process sent an unreadable answer")


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
    cancel: CancelToken | None = None,
    domain: Domain | None = None,
    taken: Outcomes | None = None,
) -> tuple[LaunchPlan, ...] | Rejection:
    """One plan for each cell that `domain` does not note as refused, in order. Without a `domain`
    the launcher must hold everywhere.

    The trace takes at most `seconds` of processor time, and `patience` times `seconds` by its
    clock. `module` is the clean kernel module, cut from the source if not given. The worker writes
    each plan to the descriptor `early` as soon as it has made it, as `tracer.trace_entry` says. The
    trace ends at once when `cancel` is set.

    Raises ZygoteError if the sandbox cannot be started, JobLost if the worker was ended from
    outside, MachineBusy if it was starved.
    """
    if module is None:
        try:
            module = extract(source)
        except KernelError as error:
            return Rejection("screen", error.guard, str(error))
    limits = Limits(patience * seconds, MEMORY_BYTES, OUTPUT_BYTES, processor_seconds=seconds)
    wanted = request(source, cells, target, whole=domain is None)
    outcome = zygote.run(
        ENTRY, wanted, limits=limits, fds=[] if early is None else [early], cancel=cancel
    )
    return read_answer(outcome, cells, module, domain, taken)


def request(source: str, cells: Sequence[Cell], target: Target, *, whole: bool = True) -> bytes:
    """The payload for the worker: shapes and scalars, no values of tensors, no names of cells."""
    listed = [
        {
            "inputs": [asdict(spec) for spec in cell.inputs],
            "scalars": [asdict(one) for one in cell.scalars],
            "outputs": len(cell.outputs),
            "changes": list(cell.changes),
            "silent": _is_silent(cell),
        }
        for cell in cells
    ]
    return json.dumps(
        {"source": source, "target": target.to_json(), "cells": listed, "whole": whole}
    ).encode()


def _is_silent(cell: Cell) -> bool:
    """Whether the reference returns nothing, so that its changed inputs are the outputs."""
    changed = [cell.inputs[place].name for place in cell.changes]
    return bool(changed) and changed == [spec.name for spec in cell.outputs]


def read_answer(
    outcome: Outcome,
    cells: Sequence[Cell],
    module: KernelModule,
    domain: Domain | None = None,
    taken: Outcomes | None = None,
) -> tuple[LaunchPlan, ...] | Rejection:
    """The plans in a worker's answer, or a rejection. Raises JobLost.

    Cells that the launcher refuses go to the `domain`, and outcomes of decisions on sizes to
    `taken`.
    """
    if outcome.killed_outside:
        raise JobLost(f"the trace worker was lost: {_one_line(outcome.detail)}")
    if outcome.status == "starved":
        raise MachineBusy(outcome.detail)
    if outcome.status != "ok":
        detail = _one_line(outcome.detail)
        ending = _ENDINGS.get(outcome.status, outcome.status)
        return _rejected(outcome.status, f"{ending}{f' ({detail})' if detail else ''}")
    try:
        answer = json.loads(outcome.data)
    except (ValueError, RecursionError):
        return _UNREADABLE
    if isinstance(answer, dict) and isinstance(answer.get("rejection"), dict):
        return _read_rejection(answer["rejection"], cells)
    plans = answer.get("plans") if isinstance(answer, dict) else None
    if not isinstance(plans, list) or len(plans) != len(cells):
        return _UNREADABLE
    parsed: list[LaunchPlan] = []
    if domain is not None:
        domain.note(_texts(answer, "circumstances"), _texts(answer, "changed"))
    for cell, data in zip(cells, plans, strict=True):
        words = data.get("refused") if isinstance(data, dict) else None
        if domain is not None and isinstance(words, str):
            domain.refused[cell] = _one_line(words)
            continue
        try:
            parsed.append(parse(data, cell.inputs, cell.outputs, module))
        except PlanError as error:
            return _rejected(error.guard, f"{_at(cell)}{_one_line(str(error))}")
        if reordered := reordered_outputs(parsed[-1], cell.outputs):
            if domain is None:
                reason = f"{_at(cell)}output `{reordered[0]}` is not contiguous"
                return _rejected("output_contract", reason)
            domain.note([f"callers that need `{name}` contiguous" for name in reordered])
    if taken is not None:
        taken.update(_outcomes(answer, cells))
    return tuple(parsed)


def _outcomes(answer: dict[str, Any], cells: Sequence[Cell]) -> Outcomes:
    """The outcomes in each cell that the launcher does not refuse; empty if unreadable."""
    outcomes = answer.get("taken")
    if not isinstance(outcomes, list) or len(outcomes) != len(cells):
        return {}
    return {
        cell: tuple(bits)
        for cell, bits, plan in zip(cells, outcomes, answer["plans"], strict=True)
        if isinstance(bits, list) and all(type(one) is int for one in bits)
        if not (isinstance(plan, dict) and "refused" in plan)
    }


def _texts(answer: dict[str, Any], key: str) -> list[str]:
    listed = answer.get(key)
    texts = listed if isinstance(listed, list) else []
    return [_one_line(text) for text in texts[:MOST_TEXTS] if isinstance(text, str)]


def _read_rejection(data: dict[str, Any], cells: Sequence[Cell]) -> Rejection:
    guard, reason, index = data.get("guard"), data.get("reason"), data.get("cell")
    if not isinstance(guard, str) or guard not in GUARDS or not isinstance(reason, str):
        return _UNREADABLE
    where = _at(cells[index]) if type(index) is int and 0 <= index < len(cells) else ""
    return _rejected(guard, where + _one_line(reason))


def _at(cell: Cell) -> str:
    shapes = ", ".join(f"{spec.name} {list(spec.shape)} {spec.dtype}" for spec in cell.inputs[:2])
    return f"at {shapes}: "


def _rejected(guard: str, reason: str) -> Rejection:
    return Rejection("trace", guard, reason)


def _one_line(text: str) -> str:
    shown = (one if one.isprintable() else " " for one in " ".join(text.split()))
    return "".join(shown)[:MAX_REASON]
