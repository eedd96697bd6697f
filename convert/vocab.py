"""A GGUF vocabulary: what every reader of a tokenizer's files makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Vocab:
    """`metadata` holds finished `tokenizer.*` keys; `notes` says what was decided and why."""

    metadata: dict[str, Any]
    notes: tuple[str, ...]
