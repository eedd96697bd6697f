"""Judges a stored draft again; the new verdict replaces the old one."""

from __future__ import annotations

from kmint_tui import paths
from kmint_tui.core.engine import Engine
from kmint_tui.core.jobs import Job
from kmint_tui.core.referee import unfit
from kmint_tui.core.task import wanted_task
from kmint_tui.errors import UsageError
from kmint_tui.history.named import FROM_OUTSIDE
from kmint_tui.history.records import Draft, Session, draft_id
from kmint_tui.history.store import History
from kmint_tui.history.verdicts import ratio
from kmint_tui.minting.request import inputs_of, shapes_of
from referee.ops import UnknownOp, get
from referee.problem import TaskName
from referee.reference.asked import Asked
from referee.verdict import Verdict


def in_catalogue(op: str) -> bool:
    """True for an operation of the catalogue, which needs no reference file."""
    try:
        get(op)
    except UnknownOp:
        return False
    return True


def task_of(session: Session, reference: Asked | None) -> str | TaskName:
    """The task of a session's drafts: its operation at its shapes, or the `reference` with its
    inputs. Raises UsageError.
    """
    if reference is not None:
        return wanted_task(None, reference.remembering(*inputs_of(session)))[1]
    return wanted_task(session.op, None, shapes_of(session))[1]


def rejudge(
    engine: Engine, session: Session, draft: Draft, job: Job, reference: Asked | None = None
) -> Verdict:
    """The new verdict, by `reference` where the session was judged by an own function, and at the
    shapes of the session.

    Raises UsageError for an unknown operation, EnvironmentUnfit where the referee could not work,
    and Cancelled. The stored verdict then stays.
    """
    if draft.duplicate_of is not None:
        original = draft_id(draft.session, draft.duplicate_of)
        raise UsageError(
            f"{draft.id} is the same kernel as {original}",
            fix=f"judge {original} again; its verdict counts for both",
        )
    task = task_of(session, reference)
    target = session.settings.get("target")
    referee = engine.referee()
    job.go_on()
    verdict = referee.judge(
        draft.source,
        task,
        level="full",
        target=target if isinstance(target, str) else None,
        strict=session.model_file != FROM_OUTSIDE,
    )
    job.go_on()
    if verdict.verdict == "error":
        raise unfit(verdict)
    with History(paths.history_file()) as history:
        history.set_verdict(
            session.id, draft.number, verdict.to_json(), ratio=ratio(verdict.timing)
        )
    return verdict
