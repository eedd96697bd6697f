"""Has the referee judge a stored draft again, and stores the new verdict over the old one."""

from __future__ import annotations

from kmint_tui import paths
from kmint_tui.cli.operations import operation
from kmint_tui.cli.referee import unfit
from kmint_tui.history.records import Draft, Session
from kmint_tui.history.store import History
from kmint_tui.minting.ranking import ratio
from kmint_tui.workbench.engine import Engine
from referee.verdict import Verdict


def rejudge(engine: Engine, session: Session, draft: Draft) -> Verdict:
    """The new verdict. Raises UsageError for an operation that kmint does not know (an own reference), EnvironmentUnfit when the
    referee could not work; the stored verdict then stays as it is."""
    op = operation(session.op)
    target = session.settings.get("target")
    verdict = engine.referee().judge(draft.source, op.name, level="full", target=target if isinstance(target, str) else None)
    if verdict.verdict == "error":
        raise unfit(verdict)
    with History(paths.history_file()) as history:
        history.set_verdict(session.id, draft.number, verdict.to_json(), ratio=ratio(verdict.timing))
    return verdict
