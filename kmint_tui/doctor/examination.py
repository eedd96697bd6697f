"""The whole examination: every probe in a child process of its own, all at once; only the caller's own terminal and switches,
which no child has, are looked at here.

Everything ends within `SECONDS`; what has not answered by then is "unknown", and so is what broke. Nothing is guessed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from kmint_tui.doctor import gpu, machine, settings
from kmint_tui.doctor.child import PROBES, QUICK, Child, listen
from kmint_tui.doctor.finding import Finding
from kmint_tui.doctor.guard import guarded

SECONDS = 9.0


def examine(*, offline: bool = False, seconds: float | None = None, started: list[Child] | None = None) -> Iterator[Finding]:
    """Every finding as soon as it is there. `offline` says that the caller was told to stay offline.

    Children that are still running after `seconds` (None: `SECONDS`) are killed, and also those left when the caller stops
    listening. They are put into `started`, so that another thread can end the examination early by killing them.
    """
    deadline = time.monotonic() + (SECONDS if seconds is None else seconds)
    children: list[Child] = [] if started is None else started
    try:
        for name in (*PROBES, *QUICK):
            if name != "replay" or gpu.usable():
                children.append(Child(name))
        yield guarded("terminal", machine.terminal)
        yield guarded("offline", lambda: settings.offline(flag=offline))
        yield from listen(children, deadline)
    finally:
        for child in children:
            child.close()
