"""What a probe found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail", "unknown"]
WORST_FIRST: tuple[Status, ...] = ("fail", "warn", "unknown", "ok")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `fix` says what to do about it, and is there whenever `status` is not "ok".

    "warn" means that kmint works with less, "fail" that a part of it does not, "unknown" that it could not be looked at.
    """

    name: str
    status: Status
    detail: str
    fix: str = ""


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """What failed before what works, each by name; findings come in the order in which the probes' processes end."""
    return tuple(sorted(findings, key=lambda one: (WORST_FIRST.index(one.status), one.name)))
