"""A probe that breaks becomes a finding."""

from __future__ import annotations

from collections.abc import Callable

from kmint_tui.doctor.finding import Finding
from kmint_tui.errors import KmintError

BROKEN = "run `kmint doctor --report FILE` and report it"

Probe = Callable[[], Finding]


def guarded(name: str, probe: Probe) -> Finding:
    """What `probe` finds; a probe that breaks becomes a finding."""
    try:
        return probe()
    except KmintError as error:
        return Finding(name, "fail", error.message, error.fix or "see `kmint --help`")
    except Exception as error:
        return Finding(name, "unknown", f"could not be looked at: {type(error).__name__}: {error}", BROKEN)
