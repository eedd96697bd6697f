"""What changed from one draft to another, as a unified diff."""

from __future__ import annotations

from difflib import unified_diff

from kmint_tui.history.records import Draft


def difference(before: Draft, after: Draft) -> str:
    """The diff's text, or one line that says there is none."""
    lines = unified_diff(before.source.splitlines(), after.source.splitlines(), before.id, after.id, lineterm="")
    return "\n".join(lines) or f"{before.id} and {after.id} are the same text"
