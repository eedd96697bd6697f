"""The result of a probe; the failure of a probe becomes one too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from kmint_tui.errors import KmintError

Status = Literal["ok", "warn", "fail", "unknown"]
WORST_FIRST: tuple[Status, ...] = ("fail", "warn", "unknown", "ok")
BROKEN = "run `kmint doctor --report FILE` and report it"


@dataclass(frozen=True)
class Finding:
    """One result of a probe. `fix` is advice, and always exists unless `status` is "ok".

    "warn" means that kmint works with less, "fail" that a part of it does not work, "unknown" that
    the check was not possible.
    """

    name: str
    status: Status
    detail: str
    fix: str = ""


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Failures first, each group by name; findings arrive in the order in which the probes end."""
    return tuple(sorted(findings, key=lambda one: (WORST_FIRST.index(one.status), one.name)))


Probe = Callable[[], Finding]


def guarded(name: str, probe: Probe) -> Finding:
    """The result of `probe`, or a finding about its exception."""
    try:
        return probe()
    except KmintError as error:
        return Finding(name, "fail", error.message, error.fix or "see `kmint --help`")
    except Exception as error:
        return Finding(
            name, "unknown", f"could not be checked: {type(error).__name__}: {error}", BROKEN
        )
