"""The protection layers around kernels and around the smith's process here: one finding a layer."""

from __future__ import annotations

from collections.abc import Iterator

from kmint_tui.doctor.finding import Finding
from referee.sandbox.demand import Protection

WEAKER = (
    "kernels still run without it, but with less protection; "
    "a newer Linux or a less restricted container has it"
)
OPEN_FILES = (
    "kernels run here only with --allow-weak-sandbox; "
    "a newer Linux or container has the missing part"
)
SMITH_WEAKER = (
    "models still run without it, but a malicious model file could reach more; "
    "a newer Linux or container has it"
)


def sandbox() -> Iterator[Finding]:
    """The referee's layers, as its server reports them without torch and Triton."""
    from referee.sandbox.demand import unmet
    from referee.sandbox.zygote import Zygote, ZygoteError

    try:
        # Any set of layers will do: this server runs no kernel.
        with Zygote(preload=(), demand="any") as zygote:
            for layer in zygote.protections:
                yield _finding(f"sandbox {layer.name}", layer, WEAKER)
            if reason := unmet(zygote.protections, "files"):
                yield Finding("sandbox", "fail", reason, OPEN_FILES)
    except ZygoteError as error:
        yield Finding(
            "sandbox",
            "fail",
            str(error),
            "kernels cannot be judged here: use Linux, outside restricted containers",
        )


def smith() -> Iterator[Finding]:
    """The smith's layers.

    This process applies them to itself and can do nothing else afterwards.
    """
    from kmint_tui.smith.confined import confine

    for layer in confine(None):
        yield _finding(f"smith {layer.name}", layer, SMITH_WEAKER)


def _finding(name: str, layer: Protection, weaker: str) -> Finding:
    if layer.active:
        return Finding(name, "ok", layer.detail or "active")
    return Finding(name, "warn", f"not active: {layer.detail or 'no reason given'}", weaker)
