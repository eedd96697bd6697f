"""The sandbox's layers as it reports them, those that a candidate needs, and messages about missing
ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Protection:
    """One layer of the sandbox on this host; `detail` says what it does, or why it is missing."""

    name: str
    active: bool
    detail: str = ""


Demand = Literal["all", "files", "any"]
"""All layers; at least one that protects the user's files; or the layers that the host has."""

_KEEP_FILES = ("landlock", "private root")


def missing(protections: Iterable[Protection]) -> tuple[Protection, ...]:
    """The layers that this host lacks."""
    return tuple(layer for layer in protections if not layer.active)


def weakness_text(protections: Sequence[Protection]) -> str:
    """The missing layers in one line; "" if there are none."""
    lost = missing(protections)
    names = ", ".join(layer.name for layer in lost)
    return (
        f"the sandbox here lacks {len(lost)} of its {len(protections)} layers: {names}"
        if lost
        else ""
    )


def unmet(protections: Sequence[Protection], demand: Demand) -> str:
    """The reason why no candidate may run under this demand; "" if candidates may run."""
    if demand == "all":
        return weakness_text(protections)
    lost = {layer.name: layer.detail for layer in missing(protections)}
    if demand == "files" and lost.keys() >= set(_KEEP_FILES):
        reasons = "; ".join(f"no {name}: {lost[name]}" for name in _KEEP_FILES)
        return f"nothing here keeps a kernel's code from this user's files ({reasons})"
    return ""
