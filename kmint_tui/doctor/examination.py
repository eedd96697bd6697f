"""The whole examination: what only looks at this process here, everything else in child processes, all at once.

Everything ends within `SECONDS`; what has not answered by then is "unknown", and so is what broke. Nothing is guessed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from kmint_tui.doctor import gpu, machine, settings
from kmint_tui.doctor.child import Child, listen
from kmint_tui.doctor.finding import Finding
from kmint_tui.doctor.guard import Probe, guarded

SECONDS = 9.0

LIGHT: tuple[tuple[str, Probe], ...] = (
    ("python", machine.python),
    ("packages", machine.packages),
    ("compiler", machine.compiler),
    ("memory", machine.memory),
    ("settings", settings.settings),
    ("terminal", machine.terminal),
    ("proxies", settings.proxies),
)

# Each runs in a process of its own, because what it loads or waits for (a driver, a dead network disk) may crash, hang or be slow.
HEAVY = ("store", "gpu", "sandbox", "llama.cpp", "kernel", "replay")


def examine(*, offline: bool = False, seconds: float = SECONDS, started: list[Child] | None = None) -> Iterator[Finding]:
    """Every finding as soon as it is there, the quick ones first. `offline` says that the caller was told to stay offline.

    Children that are still running after `seconds` are killed, and also those left when the caller stops listening. They are put
    into `started`, so that another thread can end the examination early by killing them.
    """
    deadline = time.monotonic() + seconds
    children: list[Child] = [] if started is None else started
    try:
        for name in HEAVY:
            if name != "replay" or gpu.usable():
                children.append(Child(name))
        for name, probe in LIGHT:
            yield guarded(name, probe)
        yield guarded("offline", lambda: settings.offline(flag=offline))
        yield from listen(children, deadline)
    finally:
        for child in children:
            child.close()
