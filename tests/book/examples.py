"""Books for tests: entries with usual figures, and kernels that are right or wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kmint_tui.book.records import Book, Entry, Figures, digest
from tests.referee.stand_in import SOURCE

DEVICE = "NVIDIA H200"
RIGHT = f"import torch\nimport triton\nimport triton.language as tl\n\n\n{SOURCE}"
"""A right kernel for silu."""
WRONG = RIGHT.replace("x * tl.sigmoid(x)", "x * tl.sigmoid(x) + 1.0")
FIGURES = Figures(
    verdict="win",
    ratio=1.5,
    low=1.49,
    high=1.51,
    bar="compile",
    us=20.0,
    floor_share=0.9,
    baselines={"eager": 60.0, "compile": 30.0},
)


def entry(source: str = RIGHT, op: str = "silu", shape: str = "8192x4096", **changes: Any) -> Entry:
    """An entry of one kernel; `changes` are fields of the entry or of its figures."""
    of_figures = {name: changes.pop(name) for name in tuple(changes) if hasattr(FIGURES, name)}
    usual = Entry(
        op=op,
        shape=shape,
        dtype="bfloat16",
        source_sha256=digest(source),
        author="smith",
        smith="embedded",
        smith_sha256="ab" * 32,
        changes="",
        figures=replace(FIGURES, **of_figures),
        versions={"kmint": "0.1", "torch": "2.11.0", "triton": "3.6.0"},
        commit="abc1234",
        date="2026-11-30T12:00:00+00:00",
    )
    return replace(usual, **changes)


def book(*entries: Entry, sources: tuple[str, ...] = (RIGHT,), device: str = DEVICE) -> Book:
    """A book of these entries."""
    return Book(device=device, entries=entries, sources={digest(one): one for one in sources})
