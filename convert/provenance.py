"""Who a converted file came from: sha256 digests of base and adapter, and the GGUF keys that carry them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from convert.errors import SourceError

_BLOCK = 8 * 2**20


def file_digest(path: Path) -> str:
    """sha256 of one file, in hex."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from None
    return digest.hexdigest()


def files_digest(paths: Sequence[Path]) -> str:
    """One digest for several files: the file's own for a single one, else sha256 over "digest  name" lines in name order."""
    if len(paths) == 1:
        return file_digest(paths[0])
    listing = "".join(f"{file_digest(path)}  {path.name}\n" for path in sorted(paths, key=lambda path: path.name))
    return hashlib.sha256(listing.encode()).hexdigest()
