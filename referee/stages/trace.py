"""The second stage: runs the candidate's Python for every case, on tensors without values.

Functions that do not return a rejection raise Rejected instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from referee.candidate import Candidate, Traced, raise_rejected, unless_rejected
from referee.concurrency import CancelToken
from referee.ops.spec import Cell
from referee.report import Beyond, Domain
from referee.target import Target
from referee.tracing.trace import MISSING, PATIENCE, SECONDS, trace
from referee.verdict import Rejection


def trace_cells(
    candidate: Candidate,
    cells: Sequence[Cell],
    *,
    target: Target | None = None,
    seconds: float = SECONDS,
    patience: float = PATIENCE,
    early: int | None = None,
    cancel: CancelToken | None = None,
    noted: bool = True,
) -> Traced | Rejection:
    """The plan of every cell, or the rejection of the first failure. The report does not change.

    `early` and `cancel` as in `tracing.trace`. A cell that the launcher refuses has no plan. With
    `noted`, it is added to the domain, unless the verdict is strict.
    """
    if not cells:
        return []
    domain = candidate.domain if noted or candidate.domain is None else Domain()
    plans = trace(
        candidate.workers,
        candidate.source,
        cells,
        target or candidate.target,
        candidate.module,
        seconds=seconds,
        patience=patience,
        early=early,
        cancel=cancel,
        domain=domain,
        taken=candidate.outcomes if target is None else None,
    )
    if isinstance(plans, Rejection) and plans.guard == MISSING:
        raise Beyond(f"{plans.reason}: install it next to kmint, or take it out of the file")
    if isinstance(plans, Rejection):
        return plans
    kept = [cell for cell in cells if domain is None or cell not in domain.refused]
    return list(zip(kept, plans, strict=True))


def trace_required(candidate: Candidate, cells: Sequence[Cell]) -> Traced:
    """Trace required cells and report it."""
    with candidate.report.during("trace"):
        found = unless_rejected(trace_cells(candidate, cells))
    note_traced(candidate, len(found))
    return found


def trace_many_rows(candidate: Candidate, cells: Sequence[Cell]) -> Traced:
    """Trace cells of very many rows.

    A grid beyond CUDA's limits gives its user an error, not a wrong answer, so such cells are
    skipped.
    """
    with candidate.report.during("trace"):
        found = trace_cells(candidate, cells)
    if isinstance(found, Rejection) and found.guard == "launch_limits":
        candidate.report.skips("many_rows", found.reason)
        return []
    return unless_rejected(found)


def note_traced(candidate: Candidate, count: int, more: str = "") -> None:
    """Report `count` traced required cases. `more` names cases that were traced but not judged."""
    report = candidate.report
    report.passes("trace", f"{count} cases traced twice each{more}")
    report.passes("output_contract", "type, dtype, shape and own memory of every output")


def note_domain(candidate: Candidate, cells: Sequence[Cell]) -> None:
    """Report the domain of the candidate among these cases.

    Raises Rejected if the launcher refuses the timed case or most of the others.
    """
    if candidate.domain is not None:
        raise_rejected(candidate.domain.too_small(cells, candidate.problem.bench()))
        candidate.report.holds = candidate.domain.holds(cells)
