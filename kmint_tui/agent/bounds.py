"""Documents short enough for an agent: long lists are cut, and the document counts the missing
items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kmint_tui.documents import compact

MOST_BYTES = 48 << 10
MOST_TEXT = 4000
"""Characters of one text, but for a kernel's source."""
_WHOLE = ("source", "diff")
MOST_SOURCE = 32 << 10


def verdict_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """A `kmint.verdict/1` document without the cases that passed, and without checks that were
    skipped.
    """
    cells, checks = document.get("cells") or (), document.get("checks") or ()
    shown = [cell for cell in cells if cell.get("status") == "fail"]
    return {
        **document,
        "cells": shown,
        "cells_left_out": len(cells) - len(shown),
        "checks": [check for check in checks if check.get("status") != "skipped"],
    }


def bounded(document: Mapping[str, Any], *, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """The document in at most `most_bytes` bytes of JSON: its longest lists are cut."""
    found = {name: _short(value, name) for name, value in document.items()}
    while len(compact(found).encode()) > most_bytes:
        name = max(
            found,
            key=lambda one: (
                len(compact(found[one])) if isinstance(found[one], list) and found[one] else 0
            ),
        )
        values = found[name]
        if not isinstance(values, list) or not values:
            return _least(found)
        kept = len(values) // 2
        left_out = found.get(f"{name}_left_out", 0) + len(values) - kept
        found[name], found[f"{name}_left_out"] = values[:kept], left_out
    return found


def _least(document: Mapping[str, Any]) -> dict[str, Any]:
    """The short form of a document that is too long even without its lists."""
    plain = {
        name: value
        for name, value in document.items()
        if isinstance(value, (int, float, bool)) or value is None
    }
    texts = {name: value[:500] for name, value in document.items() if isinstance(value, str)}
    return {**plain, **texts, "left_out": "this document was too long; ask for a part of it"}


def _short(value: Any, name: str) -> Any:
    if isinstance(value, str):
        most = MOST_SOURCE if name in _WHOLE else MOST_TEXT
        return (
            value
            if len(value) <= most
            else value[:most] + f"… ({len(value) - most} characters left out)"
        )
    if isinstance(value, Mapping):
        return {key: _short(item, key) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_short(item, name) for item in value]
    return value
