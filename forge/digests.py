"""The text of stages and kernels, and digests of it, to compare them."""

from __future__ import annotations

import hashlib

from kmint_tui.graph.program import Stage, stage_text


def digest_of(text: str) -> str:
    """A short digest of a kernel's source, or of any text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def body(stage: Stage) -> str:
    """The computation of a stage: its text without the example's shape."""
    lines = stage_text(stage).splitlines()
    return "\n".join((lines[0], *lines[2:]))
