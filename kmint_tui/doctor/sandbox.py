"""The layers of the referee's sandbox on this host, one by one, as its server reports them after entering it."""

from __future__ import annotations

from collections.abc import Iterator

from kmint_tui.doctor.finding import Finding

WEAKER = "candidates still run without it, but contained less; a newer kernel or a less restricted container has it"


def sandbox() -> Iterator[Finding]:
    """One finding a layer. torch and Triton are not loaded into this sandbox: they make no difference to its layers."""
    from referee.sandbox.zygote import Zygote, ZygoteError

    try:
        with Zygote(preload=()) as zygote:
            for layer in zygote.protections:
                name = f"sandbox {layer.name}"
                if layer.active:
                    yield Finding(name, "ok", layer.detail or "active")
                else:
                    yield Finding(name, "warn", f"not active: {layer.detail or 'no reason given'}", WEAKER)
    except ZygoteError as error:
        yield Finding("sandbox", "fail", str(error), "kernels cannot be judged here: use Linux, outside restricted containers")
