"""CUDA's libdevice functions of floats for the interpreter, which has none.

`libdevice_bits` has the functions of bits and integers, `libdevice_fast` the fast ones. A call to
any other function raises `Unsupported`, which is no fault of the kernel. Results are computed in
float64 and rounded once, to nearest, so they are slightly more accurate than the device's.
Arithmetic with another rounding direction is not in a kernel's vocabulary (`kernel_vocabulary`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray

from referee.interpreter import libdevice_fast
from referee.interpreter.formats import flushed
from referee.interpreter.libdevice_bits import bits_function

Array = NDArray[Any]


class Unsupported(Exception):
    """The interpreter cannot run an operation that a GPU can."""


def _slow(function: Callable[[float], float]) -> Callable[[Array], Array]:
    vectorised = np.vectorize(function, otypes=[np.float64])
    return lambda values: np.asarray(vectorised(values))


def _special(name: str) -> Callable[[Array], Array]:
    def function(values: Array) -> Array:
        # Loaded only where needed: loading takes longer than most kernels.
        import torch

        return np.asarray(
            getattr(torch.special, name)(torch.as_tensor(np.ascontiguousarray(values))).numpy()
        )

    return function


def _gamma(value: float) -> float:
    try:
        return math.gamma(value)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.copysign(math.inf, value) if value == 0 else math.nan


def _remainder(x: float, y: float) -> float:
    return math.remainder(x, y) if math.isfinite(x) and y != 0 or math.isnan(y) else math.nan


def _logb(values: Array) -> Array:
    exponents = np.frexp(values)[1] - 1.0
    return np.where(values == 0, -np.inf, np.where(np.isfinite(values), exponents, np.abs(values)))


def _length(*values: Array) -> Array:
    return np.asarray(np.sqrt(sum(np.square(value) for value in values)))


def _half_away(values: Array) -> Array:
    return np.asarray(np.copysign(np.floor(np.abs(values) + 0.5), values))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "fabs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "nearbyint": np.rint,
    "round": _half_away,
    "sqrt": np.sqrt,
    "cbrt": np.cbrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "rcbrt": lambda x: 1.0 / np.cbrt(x),
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(10.0, x),
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _slow(math.erf),
    "erfc": _slow(math.erfc),
    "normcdf": _slow(lambda x: 0.5 * math.erfc(-x / math.sqrt(2.0))),
    "pow": np.power,
    "powi": np.power,
    "ldexp": lambda x, n: x * np.exp2(n),
    "scalbn": lambda x, n: x * np.exp2(n),
    "signbit": np.signbit,
    "signbitd": np.signbit,
    "sinpi": lambda x: np.sin(np.pi * x),
    "cospi": lambda x: np.cos(np.pi * x),
    "rhypot": lambda x, y: 1.0 / np.hypot(x, y),
    "fmod": np.fmod,
    "hypot": np.hypot,
    "fdim": lambda x, y: np.maximum(x - y, 0.0),
    "copysign": np.copysign,
    "fma": lambda x, y, z: x * y + z,
    "saturatef": lambda x: np.fmin(np.fmax(x, 0.0), 1.0),
    "j0": _special("bessel_j0"),
    "j1": _special("bessel_j1"),
    "y0": _special("bessel_y0"),
    "y1": _special("bessel_y1"),
    "cyl_bessel_i0": _special("i0"),
    "cyl_bessel_i1": _special("i1"),
    "erfinv": _special("erfinv"),
    "erfcx": _special("erfcx"),
    "normcdfinv": _special("ndtri"),
    "erfcinv": lambda x: _special("ndtri")(x / 2.0) / -math.sqrt(2.0),
    "lgamma": _special("gammaln"),
    "tgamma": _slow(_gamma),
    "remainder": np.vectorize(_remainder, otypes=[np.float64]),
    "logb": _logb,
    "norm3d": _length,
    "norm4d": _length,
    "rnorm3d": lambda *values: 1.0 / _length(*values),
    "rnorm4d": lambda *values: 1.0 / _length(*values),
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rcp": lambda x: 1.0 / x,
    "isnan": np.isnan,
    "isnand": np.isnan,
    "isinf": np.isinf,
    "isinfd": np.isinf,
    "finite": np.isfinite,
    "isfinited": np.isfinite,
}


_ROUNDED = re.compile(r"[fd]?(add|sub|mul|div|rcp|sqrt|rsqrt|fma)f?_rn")
# In PTX for sm_90 each of these is one instruction with `.ftz`. Some of the others keep subnormal
# numbers, some only on the way.
_FLUSHED = re.compile(
    r"(exp2|sqrt|rsqrt|fabs|ceil|floor|saturate|fma)f|f(add|sub|mul|div|rcp|sqrt|rsqrt|maf)_rn|float2u?(int|ll)_r[nzdu]"
)


def float_function(name: str) -> Callable[..., Any] | None:
    """The libdevice function of this name (without `__nv_`) on float64 arrays, or None."""
    if name in libdevice_fast.FUNCTIONS:
        return libdevice_fast.FUNCTIONS[name]
    if rounded := _ROUNDED.fullmatch(name):
        return FUNCTIONS[rounded[1]]
    return FUNCTIONS.get(name) or FUNCTIONS.get(name.removesuffix("f"))


def install(interpreter: Any) -> None:
    """Patches this `triton.runtime.interpreter` and the libdevice modules, once per process."""
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import libdevice as device

    def extern(
        self: Any,
        library: str,
        path: str,
        symbol: str,
        arguments: list[Any],
        target: Any,
        pure: bool,
    ) -> Any:
        name, dtype = symbol.removeprefix("__nv_"), np.dtype(interpreter._get_np_dtype(target)).type
        flushes = _FLUSHED.fullmatch(name) is not None
        given = [flushed(argument.data) if flushes else argument.data for argument in arguments]
        if on_bits := bits_function(name):
            result = on_bits(*given, dtype)
        elif on_floats := float_function(name):
            result = np.asarray(on_floats(*(np.asarray(data, np.float64) for data in given)))
        else:
            raise Unsupported(f"libdevice function {symbol}")
        result = np.asarray(result).astype(dtype)
        return interpreter.TensorHandle(
            flushed(result) if flushes and dtype is np.float32 else result, target.scalar
        )

    def assembly(self: Any, *arguments: Any) -> Any:
        raise Unsupported("inline assembly")

    def bound(member: Any) -> Any:
        return lambda *args, **kwargs: member(
            *args, **kwargs, _semantic=interpreter.interpreter_semantic
        )

    interpreter.InterpreterBuilder.create_extern_elementwise = extern
    interpreter.InterpreterBuilder.create_inline_asm = assembly
    for name, member in list(vars(device).items()):
        if tl.core.is_builtin(member):
            wrapped = bound(member)
            setattr(device, name, wrapped)
            setattr(libdevice, name, wrapped)
