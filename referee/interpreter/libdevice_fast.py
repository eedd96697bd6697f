"""CUDA's fast libdevice functions, which have large errors in ranges where the plain functions are
right.

Each is composed as libdevice composes it, from the float32 approximations that the PTX manual
documents. Their properties that matter:

- A subnormal number is zero, before and after.
- A quotient by more than 2^126 is zero.
- The logarithm near one has an absolute error, so small logarithms lose their digits.
- A power goes through the logarithm of its base, so a negative base has no result.
- Sine and cosine count revolutions in float32, so large angles lose their bits.

The last bit or two of each approximation are not modelled: results are rounded once, to nearest.
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
    """Rounded to float32, with subnormal numbers replaced by zeros of their sign; as float64."""
    rounded = np.asarray(values).astype(np.float32).astype(np.float64)
    return np.where(np.abs(rounded) < _LEAST, np.copysign(0.0, rounded), rounded)


def _exp2(values: Array) -> Array:
    """The instruction `ex2.approx.ftz.f32`."""
    return _single(np.exp2(_single(values)))


def _log2(values: Array) -> Array:
    """The instruction `lg2.approx.ftz.f32`, with half of its error from 0.5 to 2 (2^-22)."""
    base = _single(values)
    exact = np.log2(base)
    return _single(
        np.where((base >= 0.5) & (base <= 2.0), np.rint(exact * 2.0**22) / 2.0**22, exact)
    )


def _divide(left: Array, right: Array) -> Array:
    """The instruction `div.approx.ftz.f32`: times a reciprocal, zero for a large `right`."""
    left, right = _single(left), _single(right)
    large = (np.abs(right) > 2.0**126) & np.isfinite(right)
    return _single(np.where(large, left * np.copysign(0.0, right), left / right))


def _angle(values: Array) -> Array:
    return 2.0 * np.pi * _single(_single(values) * _REVOLUTION)


def _sin(values: Array) -> Array:
    """The instruction `sin.approx.ftz.f32`."""
    return _single(np.sin(_angle(values)))


def _cos(values: Array) -> Array:
    """The instruction `cos.approx.ftz.f32`."""
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
