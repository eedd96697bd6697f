"""Public tolerances of the operations: what the published harness of the smiths allowed.

They are hints and an outer bound for the comparator (research/ouroboros.md 1.6). The budget itself
comes from float64 and from eager PyTorch's own error on the same data.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from referee.ops.catalogue import base_name
from referee.ops.spec import Op


@dataclass(frozen=True)
class Tolerance:
    """|error| may reach atol + rtol * |expected|."""

    rtol: float
    atol: float


PUBLIC = MappingProxyType(
    {
        "float32": Tolerance(2e-4, 2e-5),
        "float16": Tolerance(2e-2, 2e-3),
        "bfloat16": Tolerance(3e-2, 8e-3),
    }
)
_OVERRIDES = MappingProxyType({"cumsum": Tolerance(2e-4, 5e-3), "entropy": Tolerance(2e-4, 2e-2)})


def public_tolerances(op: Op) -> dict[str, Tolerance]:
    """Tolerances by dtype of the first floating input."""
    table = dict(PUBLIC)
    if base_name(op) in _OVERRIDES:
        table["float32"] = _OVERRIDES[base_name(op)]
    return table
