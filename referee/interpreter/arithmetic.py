"""Where Triton's interpreter computes something else than a GPU does, the GPU's meaning is put in its place.

Triton 3.6 and 3.7 keep bfloat16 as raw 16-bit integers there and add, compare and sum them as such; conversions truncate, and those to
8-bit floats overflow; a float that no integer holds becomes any; a sum of booleans is their "or", where one bit makes it their "xor"; min
and max spread a NaN that hardware drops; an integer divided by zero, or shifted by more bits than it has, is zero; an index below zero
counts from the end; a dot in TF32 keeps all bits; subnormal numbers are kept by what flushes them to zero; `fma` rounds twice; a reduction
with a custom combiner runs one element at a time. Here bfloat16 goes through float32 and is rounded to nearest even after every
operation, every reduction or scan is a tree of calls to its combiner, and what a compiler is free to do is done in one way or another
(`Choices`). float32 arithmetic itself stays NumPy's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from numpy.typing import NDArray

from referee.interpreter.choices import Choices
from referee.interpreter.formats import (
    cut_to_bfloat16,
    cut_to_float8e5,
    cut_to_float16,
    flushed,
    from_float8,
    narrow,
    outside,
    to_float8,
    to_integers,
    truncate_to_tf32,
    widen,
)
from referee.interpreter.libdevice import Unsupported
from referee.interpreter.reductions import reduced, scanned

Array = NDArray[Any]

_CONTRACTED = (tl.float16, tl.bfloat16, tl.float32)
_FLOATS8 = {tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2}
# In PTX for sm_90 those of Triton 3.6 and 3.7 that take and give zero for a subnormal number; `exp`, `log` and `/` do not.
_FLUSHED = "exp2 sqrt rsqrt sin erf floor ceil".split()
_SHAPED = "reshape expand_dims broadcast splat trans".split()
_CUT = {tl.float16: cut_to_float16, tl.bfloat16: cut_to_bfloat16, tl.float8e5: cut_to_float8e5}

_OF_ONE_PRODUCT = 16
"""So many products does a tensor core add to a sum in float16 before it is rounded (`mma.m16n8k16`)."""

_LOG2_E = 1.4426950408889634

_EXACT = "exact"
"""The attribute of a product that holds it in float64; no hint has this name."""


def _no_quotient(left: Array, right: Array, width: int) -> Array:
    overflows = (right == -1) & (left == np.iinfo(left.dtype).min) if right.dtype.kind == "i" else False
    return np.asarray((right == 0) | overflows)


def _no_shift(left: Array, right: Array, width: int) -> Array:
    return np.asarray((right < 0) | (right >= width))


_UNDEFINED: dict[str, Callable[[Array, Array, int], Array]] = {
    **dict.fromkeys(("idiv", "srem", "urem"), _no_quotient),
    **dict.fromkeys(("shl", "lshr", "ashr"), _no_shift),
}
"""Where the results of operations on integers are what no rule determines, by the number of their bits as well."""


def install(interpreter: Any, choices: Choices) -> None:
    """Patches the `triton.runtime.interpreter` module given, once per process."""
    handle = interpreter.TensorHandle
    builder = interpreter.InterpreterBuilder
    # The original makes a table of all dtypes at every call, of which one operation takes several.
    plain_dtype = interpreter._get_np_dtype
    dtypes: dict[str, Any] = {}

    def numpy_dtype(dtype: Any) -> Any:
        element = dtype.element_ty if isinstance(dtype, tl.block_type) else dtype
        if (found := dtypes.get(element.name)) is None:
            found = dtypes[element.name] = plain_dtype(element)
        return found

    interpreter._get_np_dtype = numpy_dtype
    plain_binary, plain_ternary = builder.binary_op, builder.ternary_op
    plain_gather, plain_histogram = builder.create_gather, builder.create_histogram
    plain_cast, plain_convert, plain_dot = builder.cast_impl, builder.create_fp_to_fp, builder.create_dot
    plain_remainder, plain_exponential = builder.create_frem, builder.create_exp

    def decoded(operand: Any) -> Array:
        data: Array = operand.data
        return widen(data) if operand.dtype.scalar == tl.bfloat16 else data

    def encoded(data: Array, dtype: Any) -> Any:
        if data.dtype == np.bool_:
            return handle(data, tl.int1)
        return handle(narrow(data), dtype) if dtype == tl.bfloat16 else handle(data, dtype)

    def cast(self: Any, source: Any, target: Any) -> Any:
        if source.dtype.scalar.is_fp8() or target.scalar.is_fp8():
            return plain_cast(self, source, target)
        data = decoded(source)
        if target.scalar == tl.bfloat16:
            return handle(narrow(data.astype(np.float32)), target.scalar)
        wanted = numpy_dtype(target)
        if data.dtype.kind != "f" or wanted.kind not in "iu":
            return handle(data.astype(wanted), target.scalar)
        found = to_integers(data, wanted)
        if (beyond := outside(data, wanted)).any():
            # What a device makes of them a compiler need not, which has only an unknown value there.
            found = choices.undetermined(found, beyond, known=True)
        return handle(found, target.scalar)

    def convert(self: Any, source: Any, target: Any, rounding: Any) -> Any:
        given, wanted = source.dtype.scalar, target.scalar
        for dtype in (given, wanted):
            if dtype.is_fp8() and dtype not in _FLOATS8:
                raise Unsupported(f"conversions of {dtype}")
        if given in _FLOATS8:
            source = handle(from_float8(source.data, _FLOATS8[given]), tl.float32)
        if rounding is None or rounding == interpreter._ir.ROUNDING_MODE.RTNE:
            return handle(to_float8(decoded(source), _FLOATS8[wanted]), wanted) if wanted in _FLOATS8 else cast(self, source, target)
        if rounding != interpreter._ir.ROUNDING_MODE.RTZ or wanted not in _CUT:
            return plain_convert(self, source, target, rounding)
        return handle(_CUT[wanted](decoded(source)), wanted)

    def rounded(values: Array, dtype: Any) -> Any:
        return encoded(values.astype(np.float32 if dtype == tl.bfloat16 else numpy_dtype(dtype)), dtype)

    def binary(self: Any, left: Any, right: Any, operation: Any) -> Any:
        # One bit, added or subtracted: NumPy has "or" and an error.
        if operation in (np.add, np.subtract) and left.data.dtype == np.bool_:
            operation = np.logical_xor
        if choices.relaxed and left.dtype.scalar in _CONTRACTED and operation in (np.add, np.subtract, np.multiply):
            return contracted(left, right, operation)
        if left.dtype.scalar != tl.bfloat16:
            return plain_binary(self, left, right, operation)
        return encoded(operation(decoded(left), decoded(right)), tl.bfloat16)

    def contracted(left: Any, right: Any, operation: Any) -> Any:
        """A sum of a product that was not rounded, as compilers make one operation of both; of two products one is rounded."""
        if operation is np.multiply:
            exact = decoded(left).astype(np.float64) * decoded(right)
            product = rounded(exact, left.dtype.scalar)
            product.attr[_EXACT] = exact
            return product
        if _EXACT in left.attr:
            return rounded(operation(left.attr[_EXACT], decoded(right)), left.dtype.scalar)
        return rounded(operation(decoded(left), right.attr.get(_EXACT, decoded(right))), left.dtype.scalar)

    def shaped(plain: Any) -> Any:
        def reshape(self: Any, *given: Any) -> Any:
            found = plain(self, *given)
            for source in given:
                if isinstance(source, handle) and _EXACT in source.attr:
                    exact = handle(source.attr[_EXACT], tl.float64)
                    found.attr[_EXACT] = plain(self, *(exact if part is source else part for part in given)).data
            return found

        return reshape

    def flushing(plain: Any) -> Any:
        def compute(self: Any, given: Any) -> Any:
            if given.data.dtype != np.float32:
                return plain(self, given)
            return handle(flushed(plain(self, handle(flushed(given.data), tl.float32)).data), tl.float32)

        return compute

    def determined(undefined: Callable[[Array, Array, int], Array], plain: Any) -> Any:
        def compute(self: Any, left: Any, right: Any) -> Any:
            where = undefined(left.data, right.data, left.dtype.scalar.primitive_bitwidth)
            if not where.any():
                return plain(self, left, right)
            # One is a divisor of everything, and bits can be shifted by it if there are several.
            safe = handle(np.where(where, right.data.dtype.type(1), right.data), right.dtype.scalar)
            found = plain(self, left, safe)
            return handle(choices.undetermined(found.data, where), found.dtype.scalar)

        return compute

    def within(indices: Array, size: int, word: str) -> None:
        if (outside := (indices < 0) | (indices >= size)).any():
            raise IndexError(f"{word} has {size} places, and place {int(indices[outside].reshape(-1)[0])} is asked for")

    def gather(self: Any, source: Any, indices: Any, axis: int) -> Any:
        within(indices.data, source.data.shape[axis], "tl.gather")
        return plain_gather(self, source, indices, axis)

    def histogram(self: Any, data: Any, bins: Any, mask: Any) -> Any:
        within(data.data if mask is None else data.data[mask.data], bins, "tl.histogram")
        return plain_histogram(self, data, bins, mask)

    def ternary(self: Any, first: Any, second: Any, third: Any, operation: Any) -> Any:
        # A select moves bits and must not round-trip through float32 (its condition is no float either).
        if operation is np.where or third.dtype.scalar != tl.bfloat16:
            return plain_ternary(self, first, second, third, operation)
        return encoded(operation(decoded(first), decoded(second), decoded(third)), tl.bfloat16)

    def clamp(self: Any, value: Any, low: Any, high: Any, propagate: Any) -> Any:
        if (decoded(low) > decoded(high)).any():
            raise ValueError("tl.clamp has a lower bound above its upper one")
        spread = propagate == interpreter._ir.PROPAGATE_NAN.ALL
        return ternary(self, value, low, high, np.clip if spread else lambda v, a, b: np.fmin(np.fmax(v, a), b))

    def fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        return rounded(decoded(x).astype(np.float64) * decoded(y) + decoded(z), z.dtype.scalar)

    def remainder(self: Any, left: Any, right: Any) -> Any:
        """x - trunc(x / y) y, with a quotient that was rounded, as LLVM has it for NVPTX; x where y is infinite."""
        if right.dtype.scalar == tl.float64:
            return plain_remainder(self, left, right)
        x, y = decoded(left).astype(np.float32), decoded(right).astype(np.float32)
        whole = np.trunc(x / y).astype(np.float64)
        return rounded(np.where(np.isinf(y), x, (x - whole * y).astype(np.float32)), right.dtype.scalar)

    def exponential(self: Any, given: Any) -> Any:
        """Of float32 a power of two, of a product that was rounded: that is how Triton lowers `exp`.

        The power is rounded once, from float64: numpy's of float32 differs by a unit in the last place from processor to processor.
        """
        if given.data.dtype != np.float32:
            return plain_exponential(self, given)
        power = np.exp2((given.data * np.float32(_LOG2_E)).astype(np.float64))
        return handle(power.astype(np.float32), given.dtype.scalar)

    def dot(self: Any, a: Any, b: Any, d: Any, precision: Any, *rest: Any) -> Any:
        tf32 = precision == interpreter._ir.INPUT_PRECISION.TF32

        def operand(side: Any) -> Any:
            if side.dtype.scalar == tl.bfloat16:
                return handle(decoded(side), tl.float32)
            if side.dtype.scalar in _FLOATS8:
                return handle(from_float8(side.data, _FLOATS8[side.dtype.scalar]), tl.float32)
            return handle(truncate_to_tf32(side.data), tl.float32) if tf32 and side.dtype.scalar == tl.float32 else side

        left, right = operand(a), operand(b)
        if not choices.relaxed or d.dtype.scalar != tl.float16:
            return plain_dot(self, left, right, d, precision, *rest)
        # A tensor core rounds such a sum after every instruction.
        for start in range(0, left.data.shape[-1], _OF_ONE_PRODUCT):
            part = slice(start, start + _OF_ONE_PRODUCT)
            some = (handle(left.data[..., part], left.dtype), handle(right.data[..., part, :], right.dtype))
            d = plain_dot(self, *some, d, precision, *rest)
        return d

    def root(plain: Any) -> Any:
        def compute(self: Any, given: Any) -> Any:
            found = plain(self, given)
            if not choices.relaxed or found.data.dtype != np.float32:
                return found
            # `sqrt.approx` may be off by a unit in the last place where the root is not exact.
            inexact = np.isfinite(found.data) & (found.data.astype(np.float64) ** 2 != given.data)
            return handle(np.where(inexact, np.nextafter(found.data, np.float32(np.inf)), found.data), found.dtype)

        return compute

    builder.cast_impl, builder.create_fp_to_fp = cast, convert
    builder.binary_op, builder.ternary_op = binary, ternary
    changes = {**dict.fromkeys(_FLUSHED, flushing), **dict.fromkeys(_SHAPED, shaped)}
    changes |= {name: functools.partial(determined, undefined) for name, undefined in _UNDEFINED.items()}
    for name, change in changes.items():
        setattr(builder, f"create_{name}", change(getattr(builder, f"create_{name}")))
    builder.create_sqrt = root(builder.create_sqrt)
    builder.create_gather, builder.create_histogram = gather, histogram
    builder.create_frem, builder.create_exp = remainder, exponential
    builder.create_clampf, builder.create_fma, builder.create_dot = clamp, fma, dot
    builder.create_maxnumf = lambda self, left, right: binary(self, left, right, np.fmax)
    builder.create_minnumf = lambda self, left, right: binary(self, left, right, np.fmin)
    builder.get_bf16 = lambda self, value: handle(narrow(np.array([value], np.float32)), tl.bfloat16)
    interpreter.ReduceOps.apply_impl = lambda operation, tensors: reduced(operation, tensors, choices.relaxed)
    interpreter.ScanOps.apply_impl = lambda operation, tensors: scanned(operation, tensors, choices.relaxed)
