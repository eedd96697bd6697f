"""The JSON documents of the history: all sessions, one session, one draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kmint_tui import paths
from kmint_tui.history.measurements import Measurement, Measurements
from kmint_tui.history.reading import for_reading
from kmint_tui.history.records import Draft, Session, Summary


def history_document(sessions: Sequence[Summary]) -> dict[str, Any]:
    """The content of a `kmint.history/1` document."""
    return {"sessions": [asdict(session) for session in sessions]}


def session_document(session: Session, drafts: Sequence[Draft]) -> dict[str, Any]:
    """The content of a `kmint.session/1` document."""
    return {**session.to_json(), "drafts": [_draft_json(draft) for draft in drafts]}


def draft_document(
    session: Session, draft: Draft, measured: Sequence[Measurement]
) -> dict[str, Any]:
    """The content of a `kmint.draft/1` document."""
    again = [
        {name: value for name, value in asdict(one).items() if name != "document"}
        for one in measured
    ]
    return {"op": session.op, "model": session.model, **_draft_json(draft), "measurements": again}


def measurements_of(draft: Draft) -> tuple[Measurement, ...]:
    """Every later measurement of the kernel: gates and grids."""
    with for_reading(paths.history_file(), Measurements) as store:
        return store.of(draft.source_sha256)


def _draft_json(draft: Draft) -> dict[str, Any]:
    return {"id": draft.id, **draft.to_json()}
