"""What is remembered from one start to the next: JSON entries by key, in a file that is replaced as a whole.

Nothing here fails: a file that cannot be read or is not ours holds nothing, one that cannot be written forgets.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

_NEWEST = 64


def read(path: Path) -> dict[str, object]:
    """All entries of a file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def keep(path: Path, key: str, entry: dict[str, object]) -> None:
    """Remember an entry; the newest few are kept."""
    entries = {**{name: old for name, old in read(path).items() if name != key}, key: entry}
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(dict(list(entries.items())[-_NEWEST:]), indent=1), encoding="utf-8")
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
