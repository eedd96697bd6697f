"""What the sandbox tells of its layers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Protection:
    """One layer of the sandbox on this host. `detail` says what it covers, or why it is missing."""

    name: str
    active: bool
    detail: str = ""
