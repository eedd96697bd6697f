"""CUDA's libdevice functions on bits, integers or one exact type: conversions, casts, integer
arithmetic.

Each function takes arrays, and then the dtype of its result. Semantics are those of the CUDA Math
API (type casting and integer intrinsics): a conversion to an integer saturates, and NaN becomes 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Function = Callable[..., Array]

_CONVERSION = re.compile(
    r"(?:float|double|int|uint|ll|ull)2(float|double|int|uint|ll|ull)_r([nzdu])"
)
_ROUND: dict[str, Callable[[Array], Array]] = {
    "n": np.rint,
    "z": np.trunc,
    "d": np.floor,
    "u": np.ceil,
}
_CASTS = frozenset(
    (
        "int_as_float float_as_int uint_as_float float_as_uint longlong_as_double "
        "double_as_longlong"
    ).split()
)


def bits_function(name: str) -> Function | None:
    """The libdevice function of this name (without `__nv_`); None for a function of floats."""
    if conversion := _CONVERSION.fullmatch(name):
        to_float = conversion[1] in ("float", "double")
        return _to_float(conversion[2]) if to_float else _to_integer(_ROUND[conversion[2]])
    if name in _CASTS:
        return lambda values, dtype: np.asarray(values).view(dtype)
    return FUNCTIONS.get(name)


def _to_float(direction: str) -> Function:
    def convert(values: Array, dtype: Any) -> Array:
        # A longdouble holds every 64-bit integer.
        exact, nearest = values.astype(np.longdouble), values.astype(dtype)
        over, under = nearest.astype(np.longdouble) > exact, nearest.astype(np.longdouble) < exact
        down, up = np.nextafter(nearest, dtype(-np.inf)), np.nextafter(nearest, dtype(np.inf))
        floor, ceiling = np.where(over, down, nearest), np.where(under, up, nearest)
        return {"n": nearest, "d": floor, "u": ceiling, "z": np.where(exact > 0, floor, ceiling)}[
            direction
        ]

    return convert


def _to_integer(rounding: Callable[[Array], Array]) -> Function:
    def convert(values: Array, dtype: Any) -> Array:
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        whole = rounding(
            np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=2.0**65, neginf=-(2.0**65))
        )
        inside = (whole >= float(least)) & (whole < float(most) + (np.dtype(dtype).itemsize < 8))
        return np.where(
            inside,
            np.where(inside, whole, 0.0).astype(dtype),
            np.where(whole < 0, dtype(least), dtype(most)),
        )

    return convert


def _half_away(values: Array) -> Array:
    return np.asarray(np.copysign(np.floor(np.abs(values) + 0.5), values))


def _ilogb(values: Array, dtype: Any) -> Array:
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    exponents = np.frexp(values)[1] - 1
    return np.where(
        (values == 0) | np.isnan(values), least, np.where(np.isinf(values), most, exponents)
    )


def _whole(arity: int, function: Callable[..., int]) -> Function:
    """A function of Python integers, wrapped to the result's dtype at the end."""
    exact = np.frompyfunc(lambda *values: function(*(int(value) for value in values)), arity, 1)

    def compute(*given: Any) -> Array:
        *arrays, dtype = given
        bits = 8 * np.dtype(dtype).itemsize
        wrapped = np.asarray(exact(*arrays), object) & ((1 << bits) - 1)
        return np.asarray(wrapped.astype(f"uint{bits}")).view(dtype)

    return compute


def _low24(value: int) -> int:
    return (value & 0x7FFFFF) - (value & 0x800000)


def _reversed(bits: int) -> Callable[[int], int]:
    return lambda value: int(f"{value & ((1 << bits) - 1):0{bits}b}"[::-1], 2)


def _leading(bits: int) -> Callable[[int], int]:
    return lambda value: bits - (value & ((1 << bits) - 1)).bit_length()


def _ones(bits: int) -> Callable[[int], int]:
    return lambda value: (value & ((1 << bits) - 1)).bit_count()


FUNCTIONS: dict[str, Function] = {
    "clz": _whole(1, _leading(32)),
    "clzll": _whole(1, _leading(64)),
    "popc": _whole(1, _ones(32)),
    "popcll": _whole(1, _ones(64)),
    "brev": _whole(1, _reversed(32)),
    "brevll": _whole(1, _reversed(64)),
    "ffs": _whole(1, lambda x: (x & -x).bit_length()),
    "ffsll": _whole(1, lambda x: (x & -x).bit_length()),
    "abs": _whole(1, abs),
    "llabs": _whole(1, abs),
    "mulhi": _whole(2, lambda x, y: x * y >> 32),
    "umulhi": _whole(2, lambda x, y: x * y >> 32),
    "mul64hi": _whole(2, lambda x, y: x * y >> 64),
    "umul64hi": _whole(2, lambda x, y: x * y >> 64),
    "mul24": _whole(2, lambda x, y: _low24(x) * _low24(y)),
    "umul24": _whole(2, lambda x, y: (x & 0xFFFFFF) * (y & 0xFFFFFF)),
    "hadd": _whole(2, lambda x, y: x + y >> 1),
    "uhadd": _whole(2, lambda x, y: x + y >> 1),
    "rhadd": _whole(2, lambda x, y: x + y + 1 >> 1),
    "urhadd": _whole(2, lambda x, y: x + y + 1 >> 1),
    "sad": _whole(3, lambda x, y, z: abs(x - y) + z),
    "usad": _whole(3, lambda x, y, z: abs(x - y) + z),
    "hiloint2double": lambda high, low, dtype: (
        high.astype(np.int64) << 32 | low.astype(np.int64) & 0xFFFFFFFF
    ).view(dtype),
    "double2hiint": lambda values, dtype: (values.view(np.int64) >> 32).astype(dtype),
    "double2loint": lambda values, dtype: values.view(np.int64).astype(dtype),
    "nextafter": lambda x, y, dtype: np.nextafter(x, y),
    "nextafterf": lambda x, y, dtype: np.nextafter(x, y),
    "ilogb": _ilogb,
    "ilogbf": _ilogb,
    "llrint": _to_integer(np.rint),
    "llrintf": _to_integer(np.rint),
    "llround": _to_integer(_half_away),
    "llroundf": _to_integer(_half_away),
}
