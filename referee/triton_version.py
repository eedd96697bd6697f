"""Which Triton is installed, and whether the referee knows it. Imports nothing of Triton.

Any other version than the known ones is refused with a clear message: a changed rule in what `triton_private.py` touches could make
a verdict false.
"""

from __future__ import annotations

import re
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

KNOWN = ("3.6", "3.7")

_VERSION = re.compile(r"""^__version__ = ["']([^"']+)["']""", re.MULTILINE)


class UnknownTriton(RuntimeError):
    """There is no Triton, or its version is not one whose private interface is known."""


def triton_version() -> str | None:
    """The version of the Triton that an import finds, without importing it: where two are on the path, the one in front counts.

    None without one.
    """
    spec = find_spec("triton")
    if spec is None or spec.origin is None:
        return None
    told = _VERSION.search(Path(spec.origin).read_text(encoding="utf-8"))
    return told[1] if told is not None else metadata.version("triton")


def check_triton(found: str | None = None) -> str:
    """The version (the installed one by default). Raises UnknownTriton unless it is known."""
    found = found or triton_version()
    if found is None:
        raise UnknownTriton(f"triton is not installed: the referee needs {' or '.join(KNOWN)}")
    if ".".join(found.split(".")[:2]) not in KNOWN:
        raise UnknownTriton(f"triton {found} is not supported: the referee knows {' and '.join(KNOWN)}; install one of these")
    return found
