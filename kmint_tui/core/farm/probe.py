"""The probe that Ray runs on every node of a cluster before any job.

It is sent by value, so that a node without kmint can answer too.
"""

from __future__ import annotations


def look() -> dict[str, object]:
    """The versions and the GPUs of this node, as far as kmint is there."""
    import platform

    found: dict[str, object] = {"host": platform.node(), "versions": None, "gpus": []}
    try:
        import kmint_tui
    except ImportError:
        return found
    found["versions"] = {"kmint": kmint_tui.__version__, "torch": None, "triton": None}
    try:
        from dataclasses import asdict

        from kmint_tui.core.farm.devices import gpus
        from kmint_tui.core.farm.job import Versions
        from kmint_tui.errors import EnvironmentUnfit
    except ImportError:
        # An earlier kmint, which is refused by its version.
        return found
    found["versions"] = asdict(Versions.here())
    try:
        found["gpus"] = [device.name for device in gpus()]
    except EnvironmentUnfit:
        pass
    return found
