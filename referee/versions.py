"""What a verdict was reached with: versions, platform and sandbox, read without importing torch or triton."""

from __future__ import annotations

import functools
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from referee.sandbox.protection import Protection
from referee.triton_version import triton_version


def describe_host(protections: Sequence[Protection] = ()) -> dict[str, Any]:
    """The part of a verdict's `environment` that does not depend on the device. `sandbox` names every layer, active or not.

    Without `protections` nothing was run, and `sandbox` is empty.
    """
    return {
        "kmint": _version("kmint"),
        "torch": _version("torch"),
        "triton": triton_version(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "sandbox": [{"name": layer.name, "active": layer.active, "detail": layer.detail} for layer in protections],
    }


@functools.cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
