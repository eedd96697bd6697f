"""Ids of the history for shell completion: sessions, and the drafts of the newest ones or of the
session being typed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

from kmint_tui import paths
from kmint_tui.errors import KmintError
from kmint_tui.escapes import visible_line

if TYPE_CHECKING:
    import click

    from kmint_tui.history.store import History

_SESSIONS = 20
_OPENED = 3


def complete_session(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completions for the id of a session or of a draft."""
    return _found(incomplete, sessions=True)


def complete_draft(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completions for the id of a draft."""
    return _found(incomplete, sessions=False)


def _found(incomplete: str, *, sessions: bool) -> list[CompletionItem]:
    """Nothing where there is no history or it cannot be read: a shell that completes is no place
    for an error.
    """
    from kmint_tui.history.reading import read_history

    if not paths.history_file().exists():
        return []
    try:
        with read_history(paths.history_file()) as history:
            return [
                item
                for item in _ids(history, incomplete, sessions=sessions)
                if item.value.startswith(incomplete)
            ]
    except (KmintError, OSError):
        return []


def _ids(history: History, incomplete: str, *, sessions: bool) -> list[CompletionItem]:
    session, dot, _ = incomplete.partition(".")
    known = history.summaries(op=None, limit=_SESSIONS)
    items = [
        CompletionItem(str(one.id), help=visible_line(f"{one.op}, {one.passed} correct"))
        for one in known
        if sessions
    ]
    typed = [int(session)] if dot and session.isascii() and session.isdigit() else []
    for number in typed or [one.id for one in known if str(one.id).startswith(session)][:_OPENED]:
        items += [
            CompletionItem(draft.id, help=visible_line(draft.outcome or ""))
            for draft in history.drafts(number)
        ]
    return items
