"""The request of one conversion."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from convert.errors import ConvertError

Level = Literal["structure", "tokenizer", "logits", "full"]
"""The levels of proof; each includes the earlier ones."""


@dataclass(frozen=True, kw_only=True)
class ConvertRequest:
    """A requested conversion. `kinds` are file types in order.

    `version` is that of the converting program. Raises ConvertError when `out` cannot be a file.
    """

    base: Path
    out: Path
    kinds: tuple[str, ...]
    adapter: Path | None = None
    pre: str | None = None
    level: Level = "tokenizer"
    version: str = ""

    def __post_init__(self) -> None:
        if not self.out.name or self.out.is_dir():
            raise ConvertError(
                f"{str(self.out)!r} is a folder, not a file", "name a file, such as smith.gguf"
            )
