"""A kernel that may be saved, before any file is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kmint_tui.save.choosing import Choice
from referee.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel ready to be written: its texts by file name, and the receipt's content but for the
    files' digests.

    `copies` are further files that the test needs. `call` is a Python expression that calls it once
    on inputs that it accepts, `kind` its signature.
    """

    stem: str
    code: str
    test: str
    receipt: Mapping[str, Any]
    verdict: Verdict
    call: str
    kind: str
    copies: Mapping[str, str] = field(default_factory=dict)
    unjudged: tuple[str, ...] = ()
    """Inputs that the file refuses because time ran out before they were judged."""
    choice: Choice | None = None
    """The table of a file that chooses by shape."""
