"""Lists of the corpus kernels that passed: one hash a line, in order, gzipped."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any


def read_passed(path: Path) -> frozenset[str]:
    """Hashes from a list written by `write_passed`."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        return frozenset(file.read().split())


def write_passed(results: list[dict[str, Any]], level: str, path: Path) -> int:
    """Write the hashes that passed at a level, sorted, gzipped with no time stamp; returns how many."""
    hashes = sorted({entry["hash"] for entry in results if entry["passed"] and entry["level"] == level})
    with path.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
        file.write(("\n".join(hashes) + "\n").encode())
    return len(hashes)
