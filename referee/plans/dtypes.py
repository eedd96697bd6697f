"""Element types of plans: sizes in bytes, value ranges, and Triton's short names."""

from __future__ import annotations

ITEMSIZE = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
}
"""Bytes per element, by torch's dtype name without prefix (as in `TensorSpec.dtype`)."""

LARGEST = {
    "float64": 1.7976931348623157e308,
    "float32": 3.4028234663852886e38,
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float8_e4m3fn": 448.0,
    "float8_e5m2": 57344.0,
}
"""Largest finite value of each floating type (IEEE 754, bfloat16, and the OCP 8-bit formats)."""

TRITON_DTYPES = frozenset(
    """
    int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 fp16 bf16 fp32 fp64
    fp8e4nv fp8e4b8 fp8e4b15 fp8e5 fp8e5b16
    """.split()
)
"""Names for which `tl.dtype(name)` is an element type."""


def integer_range(dtype: str) -> tuple[int, int] | None:
    """The smallest and largest value of an integer type or bool; None for floating types."""
    if dtype == "bool":
        return 0, 1
    if dtype in LARGEST:
        return None
    bits = 8 * ITEMSIZE[dtype]
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
