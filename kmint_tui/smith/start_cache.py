"""Measurements and crashes that later starts use: two files of JSON entries by key.

After a crash with several contexts, no later start tries several again with that model. Another
version of llama-cpp-python gets a new try. A write replaces the whole file. Nothing here raises: an
unreadable or foreign file counts as empty, and a failed write is ignored. A lost entry costs one
more crash or measurement.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from convert import files
from kmint_tui import documents
from kmint_tui.installed import llama_version

_NEWEST = 64
_CRASHES = "crashes.json"


def read(path: Path) -> dict[str, object]:
    """All entries of a file."""
    try:
        data = documents.read_json(path)
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def store(path: Path, key: str, entry: dict[str, object]) -> None:
    """Store an entry; the newest 64 stay."""
    entries = {**{name: old for name, old in read(path).items() if name != key}, key: entry}
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(path, json.dumps(dict(list(entries.items())[-_NEWEST:]), indent=1))


def remembered_crash(tuning: Path | None, model: Path) -> str:
    """The reason of an earlier start for one context with this model, or "".

    `tuning` is the file of measurements.
    """
    entry = (
        read(tuning.with_name(_CRASHES)).get(str(model.resolve())) if tuning is not None else None
    )
    if not isinstance(entry, dict) or entry.get("library") != llama_version():
        return ""
    reason = entry.get("reason")
    return f"{reason} at an earlier start" if isinstance(reason, str) and reason else ""


def remember_crash(tuning: Path | None, model: Path, reason: str) -> None:
    """Store the reason for later starts."""
    if tuning is not None:
        store(
            tuning.with_name(_CRASHES),
            str(model.resolve()),
            {"library": llama_version(), "reason": reason},
        )
