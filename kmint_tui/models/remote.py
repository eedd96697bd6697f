"""A file on the hub, as the hub describes it. Opens no connection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Remote:
    """One file on the hub at a fixed commit. `sha256` is None when the hub publishes none (files kept in plain git)."""

    repo: str
    revision: str
    name: str
    nbytes: int
    sha256: str | None
    licence: str | None
    url: str
