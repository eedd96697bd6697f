"""CUDA's libdevice functions for the interpreter, which has none: the floating ones that kernels of this catalogue use.

A call to any other ends in `Unsupported`, which is no fault of the kernel. Results are NumPy's, computed in float64
and rounded once, so they are a little more accurate than the device's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray

Array = NDArray[Any]


class Unsupported(Exception):
    """The interpreter cannot run something that a GPU can."""


def _slow(function: Callable[[float], float]) -> Callable[[Array], Array]:
    vectorised = np.vectorize(function, otypes=[np.float64])
    return lambda values: np.asarray(vectorised(values))


def _half_away(values: Array) -> Array:
    return np.asarray(np.copysign(np.floor(np.abs(values) + 0.5), values))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "fabs": np.abs, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "nearbyint": np.rint, "round": _half_away,
    "sqrt": np.sqrt, "fsqrt_rn": np.sqrt, "cbrt": np.cbrt, "rsqrt": lambda x: 1.0 / np.sqrt(x), "frsqrt_rn": lambda x: 1.0 / np.sqrt(x),
    "rcbrt": lambda x: 1.0 / np.cbrt(x), "frcp_rn": lambda x: 1.0 / x,
    "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: np.power(10.0, x), "expm1": np.expm1,
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": _slow(math.erf), "erfc": _slow(math.erfc), "normcdf": _slow(lambda x: 0.5 * math.erfc(-x / math.sqrt(2.0))),
    "pow": np.power, "powi": np.power, "ldexp": lambda x, n: x * np.exp2(n), "scalbn": lambda x, n: x * np.exp2(n), "signbit": np.signbit,
    "sinpi": lambda x: np.sin(np.pi * x), "cospi": lambda x: np.cos(np.pi * x), "rhypot": lambda x, y: 1.0 / np.hypot(x, y),
    "fmod": np.fmod, "hypot": np.hypot, "fdim": lambda x, y: np.maximum(x - y, 0.0), "copysign": np.copysign,
    "fadd_rn": np.add, "fsub_rn": np.subtract, "fmul_rn": np.multiply, "fdiv_rn": np.divide, "fdividef": np.divide,
    "fma": lambda x, y, z: x * y + z, "fma_rn": lambda x, y, z: x * y + z, "saturatef": lambda x: np.fmin(np.fmax(x, 0.0), 1.0),
    "isnan": np.isnan, "isnand": np.isnan, "isinf": np.isinf, "isinfd": np.isinf, "finite": np.isfinite, "isfinited": np.isfinite,
}  # fmt: skip


def _function(symbol: str) -> Callable[..., Any]:
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    for candidate in (name, name.removesuffix("f"), name.replace("f_", "_")):
        if candidate in FUNCTIONS:
            return FUNCTIONS[candidate]
    raise Unsupported(f"libdevice function {symbol} in the interpreter")


def install(interpreter: Any) -> None:
    """Patches the `triton.runtime.interpreter` module given, and the libdevice modules, once per process."""
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import libdevice as device

    def extern(self: Any, library: str, path: str, symbol: str, arguments: list[Any], target: Any, pure: bool) -> Any:
        exact = [np.asarray(argument.data, np.float64) for argument in arguments]
        result = np.asarray(_function(symbol)(*exact))
        return interpreter.TensorHandle(result.astype(interpreter._get_np_dtype(target)), target.scalar)

    def assembly(self: Any, *arguments: Any) -> Any:
        raise Unsupported("inline assembly in the interpreter")

    def bound(member: Any) -> Any:
        return lambda *args, **kwargs: member(*args, **kwargs, _semantic=interpreter.interpreter_semantic)

    interpreter.InterpreterBuilder.create_extern_elementwise = extern
    interpreter.InterpreterBuilder.create_inline_asm = assembly
    for name, member in list(vars(device).items()):
        if tl.core.is_builtin(member):
            wrapped = bound(member)
            setattr(device, name, wrapped)
            setattr(libdevice, name, wrapped)
