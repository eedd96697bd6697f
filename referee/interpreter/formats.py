"""Conversions between number formats with a device's bits. A bfloat16 is 16 bits here, an 8-bit
float 8.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from referee.plans.dtypes import LARGEST

Array = NDArray[Any]

_NAN8 = 0x7F
_FLOATS8 = frozenset({"float8_e4m3fn", "float8_e5m2"})
_BITS = {"bfloat16": "uint16", **dict.fromkeys(_FLOATS8, "uint8")}


def stored_as(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype that holds elements of torch's `dtype`."""
    return np.dtype(_BITS.get(dtype, dtype))


def converted(values: Array, given: str, wanted: str) -> Array:
    """Elements of torch's dtype `given` as elements of `wanted`, as torch copies them."""
    if given == wanted:
        return values
    if given in _FLOATS8:
        values = _values_of_float8(given)[values]
    elif given == "bfloat16":
        values = widen(values)
    if wanted in _FLOATS8:
        return _nearest_float8(values.astype(np.float32), wanted)
    if wanted == "bfloat16":
        return narrow(values.astype(np.float32))
    if wanted == "float16":
        # torch converts so too: it has no instruction from larger types.
        values = values.astype(np.float32)
    return values.astype(wanted)


@functools.cache
def _values_of_float8(kind: str) -> Array:
    codes = np.arange(256, dtype=np.uint16)
    if kind == "float8_e5m2":
        # The codes are the upper halves of float16; some of its NaNs are signalling.
        quiet = np.where((codes & 0x7C) == 0x7C, codes | (codes & 3 > 0) << 1, codes).astype(
            np.uint16
        )
        return (quiet << np.uint16(8)).view(np.float16).astype(np.float32)
    exponent, fraction = (codes >> 3 & 15).astype(np.int32), (codes & 7) / 8
    sizes = np.where(exponent > 0, np.ldexp(1 + fraction, exponent - 7), np.ldexp(fraction, -6))
    sizes[codes & 127 == 127] = np.nan
    return np.where(codes > 127, -sizes, sizes).astype(np.float32)


def _nearest_float8(values: Array, kind: str) -> Array:
    """The codes of float32 numbers, to nearest, ties to even.

    A number that is too large becomes infinity, or the largest number of a format without infinity.
    """
    largest = int(np.flatnonzero(_values_of_float8(kind)[:128] == LARGEST[kind])[0])
    steps = _values_of_float8(kind)[: largest + 2].astype(np.float64)
    # The code after the largest number stands for one more step of the same size.
    steps[-1] = 2 * steps[-2] - steps[-3]
    sizes = np.abs(values.astype(np.float64))
    high = np.searchsorted(steps, sizes).clip(1, largest + 1)
    below, above = sizes - steps[high - 1], steps[high] - sizes
    codes = np.where((above < below) | ((above == below) & (high % 2 == 0)), high, high - 1)
    if kind == "float8_e4m3fn":
        codes = np.minimum(codes, largest)
    codes = np.where(np.isnan(values), _NAN8, codes)
    return np.where(np.signbit(values), codes | 128, codes).astype(np.uint8)


def widen(bits: Array) -> Array:
    """bfloat16 bits as float32, exactly."""
    wide: Array = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return wide


def narrow(values: Array) -> Array:
    """float32 to bfloat16 bits, to nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).reshape(np.shape(values))
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    result: Array = np.where(np.isnan(values), quiet, rounded).astype(np.uint16)
    return result


def cut_to_bfloat16(values: Array) -> Array:
    """float32 to bfloat16 bits, towards zero; NaN stays NaN."""
    cut = np.ascontiguousarray(values, np.float32).view(np.uint32).reshape(
        np.shape(values)
    ) >> np.uint32(16)
    result: Array = np.where(np.isnan(values), cut | np.uint32(0x40), cut).astype(np.uint16)
    return result


def cut_to_float16(values: Array) -> Array:
    """To float16, towards zero: large numbers become the largest finite one; infinity stays."""
    nearest = values.astype(np.float16)
    result: Array = np.where(
        np.abs(nearest) > np.abs(values), np.nextafter(nearest, np.float16(0)), nearest
    )
    return result


def truncate_to_tf32(values: Array) -> Array:
    """float32 with ten bits of mantissa, as tensor cores read it by default."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).reshape(np.shape(values))
    result: Array = (bits & np.uint32(0xFFFFE000)).view(np.float32)
    return result


def from_float8(bits: Array, kind: str) -> Array:
    """8-bit floats as float32, exactly. `kind` is the name of torch's dtype."""
    return converted(bits, kind, "float32")


def to_float8(values: Array, kind: str) -> Array:
    """The bits of floats, as by `cvt.rn.satfinite`: large numbers become the largest finite one."""
    limit = LARGEST[kind]
    bits = converted(np.clip(values.astype(np.float32), -limit, limit), "float32", kind)
    return np.where(np.isnan(values), np.uint8(_NAN8), bits)


def cut_to_float8e5(values: Array) -> Array:
    """The bits of floats, towards zero: those of float16 without the last eight."""
    result: Array = (cut_to_float16(values).view(np.uint16) >> np.uint16(8)).astype(np.uint8)
    return result


def to_integers(values: Array, target: np.dtype[Any]) -> Array:
    """Floats as integers, cut towards zero and saturated, as by PTX's `cvt.rzi`.

    A NaN becomes zero; in a conversion from or to 64 bits it becomes the highest bit. Triton
    converts to 8 bits through 16 and keeps the lower half.
    """
    wide = np.dtype(f"{target.kind}{max(target.itemsize, 2)}")
    limits = np.iinfo(wide)
    exact = values.astype(np.float64)
    # As a float the largest integer may be one more, which no integer of this size holds.
    small, large, nan = exact <= float(limits.min), exact >= float(limits.max), np.isnan(exact)
    result = np.where(small | large | nan, 0.0, exact).astype(wide)
    result[small], result[large] = limits.min, limits.max
    if 8 in (values.itemsize, target.itemsize):
        result[nan] = limits.min or limits.max // 2 + 1
    return result.astype(target)


def outside(values: Array, target: np.dtype[Any]) -> Array:
    """Marks the floats that no integer of the type equals after cutting towards zero."""
    limits = np.iinfo(target)
    # As a float the largest integer may be one more.
    least, most = float(limits.min), float(limits.max)
    inside = (values > least - 1.0) if least - 1.0 < least else (values >= least)
    return ~(inside & (values < (most + 1.0 if most + 1.0 > most else most)))


def flushed(values: Array) -> Array:
    """float32 with subnormal numbers replaced by zeros of their sign."""
    return np.where(
        np.abs(values) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), values), values
    )
