"""The identity of a referee: its version and a digest of its sources.

The digest tells an edited or unreleased referee from the released one. All checks of a referee have
its version.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import referee
from kmint_tui import __version__


@functools.cache
def referee_identity() -> dict[str, str]:
    """The version, and the sha256 over path and text of every Python file of the referee."""
    root = Path(referee.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return {"version": __version__, "sha256": digest.hexdigest()}


def with_versions(verdict: Mapping[str, Any], version: str | None) -> dict[str, Any]:
    """A verdict's document in which every check has its version."""
    return {
        **verdict,
        "checks": [{**check, "version": version} for check in verdict.get("checks") or ()],
    }
