"""The origin of a converted file: sha256 digests of base and adapter, and their GGUF keys."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from convert.errors import SourceError
from convert.write import worker_threads

_BLOCK = 2**20


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
    """One digest for several files: a single file's own, else sha256 over "digest name" lines by
    name.
    """
    if len(paths) == 1:
        return file_digest(paths[0])
    named = sorted(paths, key=lambda path: path.name)
    with ThreadPoolExecutor(worker_threads()) as pool:
        listing = "".join(
            f"{digest}  {path.name}\n"
            for digest, path in zip(pool.map(file_digest, named), named, strict=True)
        )
    return hashlib.sha256(listing.encode()).hexdigest()
