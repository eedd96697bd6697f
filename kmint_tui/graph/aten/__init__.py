"""ATen operations as values: `TABLE` has one entry for each operation that a traced function may
use.

An operation without an entry is out of scope, and the error names it. This package imports no
torch.
"""

from __future__ import annotations

from kmint_tui.graph.aten import (
    activations,
    casts,
    creation,
    indexing,
    norms,
    pointwise,
    pooling,
    reductions,
    shapes,
)
from kmint_tui.graph.aten.table import TABLE, Entry

FAMILIES = (activations, casts, creation, indexing, norms, pointwise, pooling, reductions, shapes)
"""Modules whose import fills the table."""

__all__ = ["FAMILIES", "TABLE", "Entry"]
