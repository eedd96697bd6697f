"""Both trusted forms of an operation: `eager` (PyTorch, fp32 inside) and `oracle` (float64)."""

from referee.ops.eager import eager
from referee.ops.oracle import oracle

__all__ = ["eager", "oracle"]
