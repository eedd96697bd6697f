"""Has the referee judge a stored draft again, and stores the new verdict over the old one."""

from __future__ import annotations

from kmint_tui import paths
from kmint_tui.cli.referee import unfit, wanted_task
from kmint_tui.errors import UsageError
from kmint_tui.history.records import Draft, Session, draft_id
from kmint_tui.history.store import History
from kmint_tui.minting.ranking import ratio
from kmint_tui.workbench.engine import Engine
from kmint_tui.workbench.jobs import Job
from referee.ops import UnknownOp, get
from referee.verdict import Verdict


def in_catalogue(op: str) -> bool:
    """Whether the referee knows this operation without a reference file."""
    try:
        get(op)
    except UnknownOp:
        return False
    return True


def rejudge(engine: Engine, session: Session, draft: Draft, job: Job, reference: str | None = None) -> Verdict:
    """The new verdict, by `reference` (FILE.py[:FN]) where the session was judged by an own one.

    Raises UsageError for an operation that kmint does not know, EnvironmentUnfit when the referee could not work, Cancelled; the
    stored verdict then stays as it is.
    """
    if draft.duplicate_of is not None:
        original = draft_id(draft.session, draft.duplicate_of)
        raise UsageError(f"{draft.id} is the same kernel as {original}", fix=f"judge {original} again; its verdict counts for both")
    task = wanted_task(None if reference else session.op, reference)[1]
    target = session.settings.get("target")
    referee = engine.referee()
    job.go_on()
    verdict = referee.judge(draft.source, task, level="full", target=target if isinstance(target, str) else None)
    job.go_on()
    if verdict.verdict == "error":
        raise unfit(verdict)
    with History(paths.history_file()) as history:
        history.set_verdict(session.id, draft.number, verdict.to_json(), ratio=ratio(verdict.timing))
    return verdict
