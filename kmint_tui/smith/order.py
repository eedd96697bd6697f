"""The model that the engine's process loads, and the settings for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Order:
    """None leaves a decision to the engine; `..._reason` explains a decision that is fixed, or is
    "".

    `known` are the measurements of earlier starts, by key (`tuning.py`).
    """

    path: Path
    _: KW_ONLY
    gpu_layers: int | None = None
    allow_cpu: bool = False
    threads: int | None = None
    sampling: str | None = None
    lanes: int | None = None
    max_cells: int | None = None
    known: Mapping[str, object] = field(default_factory=dict)
    plain_reason: str = ""
    single_reason: str = ""
