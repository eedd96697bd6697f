"""Takes a session out of the history, with its drafts and the texts that nothing else uses."""

from __future__ import annotations

from kmint_tui import paths
from kmint_tui.history.database import connect, transaction

_UNUSED = (
    "DELETE FROM texts WHERE sha256 NOT IN (SELECT source_sha256 FROM drafts)"
    " AND sha256 NOT IN (SELECT system_sha256 FROM sessions) AND sha256 NOT IN (SELECT user_sha256 FROM sessions)"
)


def delete_session(session: int) -> None:
    """Delete it in one transaction. Raises StorageError."""
    path = paths.history_file()
    connection = connect(path)
    try:
        with transaction(connection, path):
            connection.execute("DELETE FROM drafts WHERE session = ?", (session,))
            connection.execute("DELETE FROM sessions WHERE id = ?", (session,))
            connection.execute(_UNUSED)
    finally:
        connection.close()
