"""The state of a session in one line, and the keys that go on from its result."""

from __future__ import annotations

from kmint_tui.core.session_state import LiveSession
from kmint_tui.minting.result import MintResult, best_of, how_many

_JUDGED = ("judged", "same", "stopped", "to be timed")


def summary(session: LiveSession) -> str:
    """The counts first, because a narrow terminal cuts off the end; empty before the session."""
    if session.request is None:
        return ""
    drafts = [row for row in session.drafts.values() if row.by_smith]
    judged = sum(row.phase in _JUDGED for row in drafts)
    result = session.result
    if result is None:
        counted = f"{judged}/{len(drafts)} judged, {session.passed} correct"
        state = "stopping" if session.stopping else ""
    else:
        counted = how_many(result)
        state = f"{result.state} in {result.seconds:.1f} s"
        if result.state != "done":
            state += f": {_left_out(session, result)}"
    tokens = sum(row.tokens for row in drafts)
    request = session.request
    head = f"session {session.session}: {request.op.name}, {request.model.id}, seed {request.seed}"
    return "  ·  ".join(part for part in (counted, state, f"{tokens} tokens", head) if part)


def what_next(result: MintResult) -> str:
    """The best kernel, by what it is ranked, and the keys to go on with."""
    if result.best is None:
        return f"{best_of(result)}. Press enter for a draft's reasons, e to change the form."
    use = f"from kernels.{result.request.op.name} import {result.request.op.name}"
    return f"{best_of(result)}. Press s to save it, enter to see its checks; then: {use}"


def _left_out(session: LiveSession, result: MintResult) -> str:
    """The drafts that a stop left without a verdict."""
    wanted = result.request.drafts
    judged = sum(
        result.verdict_of(draft) is not None for draft in result.drafts if draft.author == "smith"
    )
    kept = f"kept in session {session.session}"
    return f"{judged} of {wanted} drafts judged, {max(wanted - judged, 0)} not; {kept}"
