"""What a probe found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail", "unknown"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `fix` says what to do about it, and is there whenever `status` is not "ok".

    "warn" means that kmint works with less, "fail" that a part of it does not, "unknown" that it could not be looked at.
    """

    name: str
    status: Status
    detail: str
    fix: str = ""
