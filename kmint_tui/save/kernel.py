"""A kernel that may be saved, before any file is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from referee.verdict import Verdict


@dataclass(frozen=True)
class Kernel:
    """A kernel ready to be written: its texts by file name, and the receipt's content but for the files' digests."""

    stem: str
    code: str
    test: str
    receipt: Mapping[str, Any]
    verdict: Verdict
