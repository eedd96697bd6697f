"""The list of the corpus's kernels that passed: one digest a line, gzipped if its name says so."""

from __future__ import annotations

import gzip
from pathlib import Path


def read_passed(path: Path) -> frozenset[str]:
    """The digests of a list that `forge.validate` wrote."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        return frozenset(file.read().split())
