"""Conversions between number formats, bit by bit as a device makes them. bfloat16 is 16 bits here, and an 8-bit float 8."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]

_NAN8 = 0x7F


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
    cut = np.ascontiguousarray(values, np.float32).view(np.uint32).reshape(np.shape(values)) >> np.uint32(16)
    result: Array = np.where(np.isnan(values), cut | np.uint32(0x40), cut).astype(np.uint16)
    return result


def cut_to_float16(values: Array) -> Array:
    """To float16, towards zero: what is too large becomes the largest finite value, but infinity stays."""
    nearest = values.astype(np.float16)
    result: Array = np.where(np.abs(nearest) > np.abs(values), np.nextafter(nearest, np.float16(0)), nearest)
    return result


def truncate_to_tf32(values: Array) -> Array:
    """float32 with ten bits of mantissa, as tensor cores read it by default."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).reshape(np.shape(values))
    result: Array = (bits & np.uint32(0xFFFFE000)).view(np.float32)
    return result


def from_float8(bits: Array, kind: torch.dtype) -> Array:
    """As float32, exactly."""
    return np.asarray(torch.tensor(bits).view(kind).to(torch.float32).numpy())


def to_float8(values: Array, kind: torch.dtype) -> Array:
    """The bits of floats, to nearest, as by `cvt.rn.satfinite`: what is too large becomes the largest finite value, as infinity does."""
    limit = torch.finfo(kind).max
    bits = torch.tensor(values.astype(np.float32)).clamp(-limit, limit).to(kind).view(torch.uint8).numpy()
    return np.where(np.isnan(values), np.uint8(_NAN8), bits)


def cut_to_float8e5(values: Array) -> Array:
    """The bits of floats, towards zero: those of float16 but the last eight."""
    result: Array = (cut_to_float16(values).view(np.uint16) >> np.uint16(8)).astype(np.uint8)
    return result


def to_integers(values: Array, target: np.dtype[Any]) -> Array:
    """Floats as integers, cut towards zero, as by PTX's `cvt.rzi`: what is too large or too small becomes the largest or smallest.

    A NaN becomes zero, and the highest bit where 64 bits are converted from or to. Triton converts to 8 bits by way of 16, of which
    the lower half is kept.
    """
    wide = np.dtype(f"{target.kind}{max(target.itemsize, 2)}")
    limits = np.iinfo(wide)
    exact = values.astype(np.float64)
    # As a float the largest integer may be one more than it is, which no integer of the size holds either.
    small, large, nan = exact <= float(limits.min), exact >= float(limits.max), np.isnan(exact)
    result = np.where(small | large | nan, 0.0, exact).astype(wide)
    result[small], result[large] = limits.min, limits.max
    if 8 in (values.itemsize, target.itemsize):
        result[nan] = limits.min or limits.max // 2 + 1
    return result.astype(target)


def outside(values: Array, target: np.dtype[Any]) -> Array:
    """Where no integer of the type is what a float is when it is cut towards zero."""
    limits = np.iinfo(target)
    # As floats, of which the largest may be one more than the integer is.
    least, most = float(limits.min), float(limits.max)
    inside = (values > least - 1.0) if least - 1.0 < least else (values >= least)
    return ~(inside & (values < (most + 1.0 if most + 1.0 > most else most)))


def flushed(values: Array) -> Array:
    """float32 whose subnormal numbers are zeros of their sign."""
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), values), values)
