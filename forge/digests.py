"""The text of stages and kernels, digests of it to compare them, and seeds."""

from __future__ import annotations

import hashlib

from kmint_tui.graph.program import Stage, stage_text


def digest_of(text: str) -> str:
    """A short digest of a kernel's source, or of any text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def seed_of(*parts: object) -> int:
    """A seed of 48 bits for a part of a run, from the run's seed and the names of the part."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def body(stage: Stage) -> str:
    """The computation of a stage: its text without the example's shape."""
    lines = stage_text(stage).splitlines()
    return "\n".join((lines[0], *lines[2:]))
