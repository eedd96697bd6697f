"""The tools that look, save and mint: `list_operations`, `show_operation`, `history`, `save`,
`mint`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kmint_tui import paths
from kmint_tui.agent.arguments import Looked, Minted, Named, Saved, Search
from kmint_tui.agent.bounds import verdict_document
from kmint_tui.agent.call import Call
from kmint_tui.agent.kernels import Desk
from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from kmint_tui.events import MintEvent
    from referee.judge import Referee

MOST_SESSIONS, MOST_DRAFTS, MOST_REPAIRS = 100, 64, 8


def list_operations(given: Search, call: Call) -> dict[str, Any]:
    """A `kmint.ops/1` document; an operation has its name, title and signature only."""
    from kmint_tui.core.op_search import find
    from kmint_tui.core.operations import ops_document

    found = ops_document(find(given.search or ""))["ops"]
    return {
        "schema": "kmint.ops/1",
        "ops": [
            {name: op[name] for name in ("name", "title", "family", "signature")} for op in found
        ],
    }


def show_operation(given: Named, call: Call) -> dict[str, Any]:
    """A `kmint.op/1` document, with a few of its test cases."""
    from kmint_tui.core.operations import op_document
    from kmint_tui.core.task import operation

    content = op_document(operation(given.op))
    cells = content.pop("cells")
    return {
        "schema": "kmint.op/1",
        **content,
        "cells": {profile: some[:12] for profile, some in cells.items()},
    }


def history(given: Looked, call: Call) -> dict[str, Any]:
    """A `kmint.history/1`, `kmint.session/1` or `kmint.draft/1` document."""
    from kmint_tui.history.documents import (
        draft_document,
        history_document,
        measurements_of,
        session_document,
    )
    from kmint_tui.history.reading import read_history
    from kmint_tui.history.records import parse_id

    if not 1 <= given.limit <= MOST_SESSIONS:
        raise UsageError(f"limit is 1 to {MOST_SESSIONS}")
    where = parse_id(given.id) if given.id is not None else None
    if not paths.history_file().exists():
        if where is not None:
            raise UsageError(
                "the history is empty", fix="`judge` with `session` keeps a kernel there"
            )
        return {"schema": "kmint.history/1", "sessions": []}
    with read_history(paths.history_file()) as store:
        if where is None:
            return {
                "schema": "kmint.history/1",
                **history_document(store.summaries(op=given.op, limit=given.limit)),
            }
        session = store.session(where.session)
        if where.number is not None:
            draft = store.draft(where.session, where.number)
            content = _short(draft_document(session, draft, measurements_of(draft)))
            return {"schema": "kmint.draft/1", **content}
        content = session_document(session, store.drafts(session.id))
    drafts = [
        {name: one[name] for name in one if name not in ("source", "verdict")} | _why(one)
        for one in content["drafts"]
    ]
    return {"schema": "kmint.session/1", **content, "drafts": drafts}


def _short(draft: dict[str, Any]) -> dict[str, Any]:
    return {
        **draft,
        "verdict": verdict_document(draft["verdict"]) if draft.get("verdict") else None,
    }


def _why(draft: dict[str, Any]) -> dict[str, str]:
    from kmint_tui.minting.reasons import short_reason

    return {"why": short_reason(draft["verdict"]) if draft.get("verdict") else "not judged"}


def save(desk: Desk, given: Saved, call: Call) -> dict[str, Any]:
    """A `kmint.save/1` document. Raises KmintError."""
    from kmint_tui.core.save import save_draft
    from kmint_tui.history.reading import read_history

    folder = desk.folders.inside(given.folder)
    if not paths.history_file().exists():
        raise UsageError("the history is empty", fix="`judge` with `session` keeps a kernel there")
    reference = desk.reference(given.reference)
    call.tell("judging the kernel as it will stand")
    with read_history(paths.history_file()) as store:
        saved = save_draft(
            store,
            desk.referee,
            given.draft,
            folder,
            reference=reference,
            form=given.format,
            force=given.force,
        )
    return {
        "schema": "kmint.save/1",
        "id": given.draft,
        "files": [str(path) for path in saved.files],
        "verdict": verdict_document(saved.verdict.to_json()),
        "first_call": saved.first_call,
    }


def _model(desk: Desk, named: str | None) -> str | None:
    """A model by its id, or a file below the folders. Raises UsageError."""
    from kmint_tui.models import endpoint, registry

    if named is None or named in {
        entry.id for entry in registry.load(paths.user_models_file()).entries
    }:
        return named
    return named if endpoint.is_address(named) else str(desk.folders.inside(named))


def mint(desk: Desk, referee: Referee, given: Minted, call: Call) -> dict[str, Any]:
    """A `kmint.mint/1` document without the sources of rejected drafts. Raises KmintError."""
    import secrets

    from kmint_tui.core.engine import smith_of
    from kmint_tui.core.judges import of_referee
    from kmint_tui.core.planning import MintOptions, plan
    from kmint_tui.core.session import Session
    from kmint_tui.core.task import operation
    from kmint_tui.events import DraftFinished, Judged
    from kmint_tui.history.store import History
    from kmint_tui.smith.engine import own_log

    if not (1 <= given.drafts <= MOST_DRAFTS and 0 <= given.repair <= MOST_REPAIRS):
        raise UsageError(f"drafts are 1 to {MOST_DRAFTS}, rounds of repair 0 to {MOST_REPAIRS}")
    options = MintOptions(
        op=operation(given.op).name,
        model=_model(desk, given.model),
        drafts=given.drafts,
        seed=given.seed,
        until=given.until,
        repair=given.repair,
    )
    request = plan(options, draw_seed=lambda: secrets.randbelow(2**32))
    call.tell(f"drafting {given.drafts} kernels with {request.model.id}")

    def report(event: MintEvent) -> None:
        # A cancelled call ends the session here; the finished drafts stay in the history.
        call.check()
        match event:
            case DraftFinished(draft=draft):
                call.tell(f"draft {draft.index} is written")
            case Judged(index=index, verdict=verdict):
                call.tell(f"draft {index}: {verdict.verdict}")

    session = Session(request, report)
    with History(paths.history_file()) as store, smith_of(request, own_log()) as smith:
        result = session.run(smith=smith, judge=of_referee(referee), history=store)
    if session.failure is not None:
        raise session.failure
    assert result is not None
    content = result.to_json()
    shown = result.ranking[:3]
    drafts = [
        _short(one) | ({} if one["index"] in shown else {"source": ""}) for one in content["drafts"]
    ]
    return {**content, "best_id": result.best_id, "drafts": drafts}
