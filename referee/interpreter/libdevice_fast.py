"""CUDA's fast libdevice functions, which are badly wrong in ranges where the plain functions of their names are right.

Each is written out as libdevice writes it out, of the approximations that PTX's manual documents, in float32. What matters of those:
a subnormal number is zero, before and after; a quotient by more than 2^126 is zero; the logarithm of a number around one has an
absolute error, so that of its power near one and its own small values little is left; a power is taken by way of the logarithm of
its base, so that a negative base has none; sine and cosine count revolutions in float32, so that large angles lose their bits. Of each
approximation the last bit or two are not modelled: it is rounded once, to nearest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_LEAST = 2.0**-126
_LOG2_E, _LOG2_10 = float(np.float32(np.log2(np.e))), float(np.float32(np.log2(10.0)))
_LN_2, _LOG10_2 = float(np.float32(np.log(2.0))), float(np.float32(np.log10(2.0)))
_REVOLUTION = float(np.float32(0.5 / np.pi))


def _single(values: Array) -> Array:
    """Rounded to float32, of which subnormal numbers are zeros of their sign; as float64."""
    rounded = np.asarray(values).astype(np.float32).astype(np.float64)
    return np.where(np.abs(rounded) < _LEAST, np.copysign(0.0, rounded), rounded)


def _exp2(values: Array) -> Array:
    """`ex2.approx.ftz.f32`"""
    return _single(np.exp2(_single(values)))


def _log2(values: Array) -> Array:
    """`lg2.approx.ftz.f32`, whose error from 0.5 to 2 is up to 2^-22: here at most half of that."""
    base = _single(values)
    exact = np.log2(base)
    return _single(np.where((base >= 0.5) & (base <= 2.0), np.rint(exact * 2.0**22) / 2.0**22, exact))


def _divide(left: Array, right: Array) -> Array:
    """`div.approx.ftz.f32`: times a reciprocal, which is zero, being subnormal, if `right` is large."""
    left, right = _single(left), _single(right)
    large = (np.abs(right) > 2.0**126) & np.isfinite(right)
    return _single(np.where(large, left * np.copysign(0.0, right), left / right))


def _angle(values: Array) -> Array:
    return 2.0 * np.pi * _single(_single(values) * _REVOLUTION)


def _sin(values: Array) -> Array:
    """`sin.approx.ftz.f32`"""
    return _single(np.sin(_angle(values)))


def _cos(values: Array) -> Array:
    """`cos.approx.ftz.f32`"""
    return _single(np.cos(_angle(values)))


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "fast_cosf": _cos,
    "fast_exp10f": lambda x: _exp2(_single(x * _LOG2_10)),
    "fast_expf": lambda x: _exp2(_single(x * _LOG2_E)),
    "fast_fdividef": _divide,
    "fast_log10f": lambda x: _single(_log2(x) * _LOG10_2),
    "fast_log2f": _log2,
    "fast_logf": lambda x: _single(_log2(x) * _LN_2),
    "fast_powf": lambda x, y: _exp2(_single(_single(y) * _log2(x))),
    "fast_sinf": _sin,
    "fast_tanf": lambda x: _divide(_sin(x), _cos(x)),
}
