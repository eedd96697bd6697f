"""That llama.cpp crashed with several lanes, kept from one start to the next, so that no later start tries it again.

Kept beside the file of measurements, by model file; another version of llama-cpp-python is given another try. Losing the file
costs a crash, not being able to write it costs one a start.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from kmint_tui.smith import kept

_NAME = "crashes.json"


def remembered(tuning: Path | None, model: Path) -> str:
    """Why this model is to have one lane, from an earlier start; "" when nothing is known. `tuning` is the file of measurements."""
    entry = kept.read(tuning.with_name(_NAME)).get(str(model.resolve())) if tuning is not None else None
    if not isinstance(entry, dict) or entry.get("library") != _library():
        return ""
    reason = entry.get("reason")
    return f"{reason} at an earlier start" if isinstance(reason, str) and reason else ""


def remember(tuning: Path | None, model: Path, reason: str) -> None:
    """Keep the reason for later starts."""
    if tuning is not None:
        kept.keep(tuning.with_name(_NAME), str(model.resolve()), {"library": _library(), "reason": reason})


def _library() -> str:
    try:
        return metadata.version("llama-cpp-python")
    except metadata.PackageNotFoundError:
        return ""
