"""What one conversion is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Level = Literal["structure", "tokenizer", "logits", "full"]
"""How much is proven; each holds the ones before it."""


@dataclass(frozen=True)
class Request:
    """What to convert. `kinds` are file types in the order asked for; `version` is the converting program's."""

    base: Path
    out: Path
    kinds: tuple[str, ...]
    adapter: Path | None = None
    pre: str | None = None
    level: Level = "tokenizer"
    version: str = ""
