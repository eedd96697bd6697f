"""Compiled kernels on disk, owned by the judge. Entries are written by the judge only, after it has checked them."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from referee.compiling.binaries import Binary, BinaryError, dump_binary, parse_binary

MAX_ENTRIES = 4096


class CompileCache:
    """A directory of one file a compiled kernel, named by its key. The oldest quarter goes when it is full."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self, key: str, kernel: str) -> Binary | None:
        """The kernel with this key, or None; an entry that cannot be read counts as missing."""
        try:
            return parse_binary(json.loads((self._directory / f"{key}.json").read_bytes()), kernel, key)
        except (OSError, ValueError, RecursionError, BinaryError):
            return None

    def store(self, binary: Binary) -> None:
        """Keep a kernel. A directory that cannot be written is no error: the next judgement compiles again."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._directory, suffix=".part")
            with os.fdopen(handle, "w") as file:
                json.dump(dump_binary(binary), file)
            os.replace(name, self._directory / f"{binary.key}.json")
        except OSError:
            return

    def prune(self) -> None:
        """Drop the oldest quarter of the entries if there are more than MAX_ENTRIES, and files left by a kill."""
        try:
            entries = sorted((entry.stat().st_mtime, entry.path) for entry in os.scandir(self._directory))
            for _, path in entries[: len(entries) // 4] if len(entries) > MAX_ENTRIES else []:
                os.unlink(path)
        except OSError:
            return
