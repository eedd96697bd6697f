"""Where Triton's interpreter computes something else than a GPU does, the GPU's meaning is put in its place.

Triton 3.6 and 3.7 keep bfloat16 as raw 16-bit integers there and add, compare and sum them as such; conversions truncate; a float
that no integer holds becomes any; a sum of booleans is their "or", where one bit makes it their "xor"; min and max spread a NaN that
hardware drops; an integer divided by zero is zero; an index below zero counts from the end; a dot in TF32 keeps all bits; a reduction
with a custom combiner runs one element at a time. Here bfloat16 goes through float32 and is rounded to nearest even after every
operation, and every reduction or scan is the same tree of calls to its combiner that the compiler emits. float32 arithmetic itself
stays NumPy's.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray

Array = NDArray[Any]

_PLAIN_FLOATS = (tl.float16, tl.bfloat16, tl.float32, tl.float64)


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


def truncate_to_tf32(values: Array) -> Array:
    """float32 with ten bits of mantissa, as tensor cores read it by default."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).reshape(np.shape(values))
    result: Array = (bits & np.uint32(0xFFFFE000)).view(np.float32)
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


def install(interpreter: Any) -> None:
    """Patches the `triton.runtime.interpreter` module given, once per process."""
    handle = interpreter.TensorHandle
    builder = interpreter.InterpreterBuilder
    # The original makes a table of all dtypes at every call, of which one operation takes several.
    plain_dtype = interpreter._get_np_dtype
    scalar_dtype = functools.cache(plain_dtype)

    def numpy_dtype(dtype: Any) -> Any:
        element = dtype.element_ty if isinstance(dtype, tl.block_type) else dtype
        return plain_dtype(element) if isinstance(element, tl.pointer_type) else scalar_dtype(element)

    interpreter._get_np_dtype = numpy_dtype
    plain_binary, plain_ternary = builder.binary_op, builder.ternary_op
    plain_gather, plain_histogram = builder.create_gather, builder.create_histogram
    plain_cast, plain_convert, plain_dot = builder.cast_impl, builder.create_fp_to_fp, builder.create_dot

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
        integers = data.dtype.kind == "f" and wanted.kind in "iu"
        return handle(to_integers(data, wanted) if integers else data.astype(wanted), target.scalar)

    def convert(self: Any, source: Any, target: Any, rounding: Any) -> Any:
        nearest = rounding is None or rounding == interpreter._ir.ROUNDING_MODE.RTNE
        if nearest and source.dtype.scalar in _PLAIN_FLOATS and target.scalar in _PLAIN_FLOATS:
            return cast(self, source, target)
        return plain_convert(self, source, target, rounding)

    def binary(self: Any, left: Any, right: Any, operation: Any) -> Any:
        # One bit, added or subtracted: NumPy has "or" and an error.
        if operation in (np.add, np.subtract) and left.data.dtype == np.bool_:
            operation = np.logical_xor
        if left.dtype.scalar != tl.bfloat16:
            return plain_binary(self, left, right, operation)
        return encoded(operation(decoded(left), decoded(right)), tl.bfloat16)

    def quotient(plain: Any) -> Any:
        def divide(self: Any, left: Any, right: Any) -> Any:
            zero = right.data == 0
            if not zero.any():
                return plain(self, left, right)
            found = plain(self, left, handle(np.where(zero, right.data.dtype.type(1), right.data), right.dtype.scalar))
            # What hardware gives is not said anywhere; where it matters, that shows with all bits set rather than with none.
            return handle(np.where(zero, ~np.zeros_like(found.data), found.data), found.dtype.scalar)

        return divide

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
        spread = propagate == interpreter._ir.PROPAGATE_NAN.ALL
        return ternary(self, value, low, high, np.clip if spread else lambda v, a, b: np.fmin(np.fmax(v, a), b))

    def fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        return encoded(decoded(x) * decoded(y) + decoded(z), z.dtype.scalar)

    def dot(self: Any, a: Any, b: Any, d: Any, precision: Any, *rest: Any) -> Any:
        tf32 = precision == interpreter._ir.INPUT_PRECISION.TF32

        def operand(side: Any) -> Any:
            if side.dtype.scalar == tl.bfloat16:
                return handle(decoded(side), tl.float32)
            return handle(truncate_to_tf32(side.data), tl.float32) if tf32 and side.dtype.scalar == tl.float32 else side

        return plain_dot(self, operand(a), operand(b), d, precision, *rest)

    builder.cast_impl, builder.create_fp_to_fp = cast, convert
    builder.binary_op, builder.ternary_op = binary, ternary
    builder.create_idiv = quotient(builder.create_idiv)
    builder.create_srem, builder.create_urem = quotient(builder.create_srem), quotient(builder.create_urem)
    builder.create_gather, builder.create_histogram = gather, histogram
    builder.create_clampf, builder.create_fma, builder.create_dot = clamp, fma, dot
    builder.create_maxnumf = lambda self, left, right: binary(self, left, right, np.fmax)
    builder.create_minnumf = lambda self, left, right: binary(self, left, right, np.fmin)
    builder.get_bf16 = lambda self, value: handle(narrow(np.array([value], np.float32)), tl.bfloat16)
    interpreter.ReduceOps.apply_impl = _reduce
    interpreter.ScanOps.apply_impl = _scan


def _combined(operation: Any, left: list[Any], right: list[Any]) -> list[Array]:
    merged = operation.combine_fn.fn(*left, *right)
    return [part.handle.data for part in (merged if isinstance(merged, tuple) else (merged,))]


def _tensors(operation: Any, arrays: list[Array], tensors: tuple[Any, ...]) -> list[Any]:
    return [operation.to_tensor(array, tensor.dtype) for array, tensor in zip(arrays, tensors, strict=True)]


def _reduce(operation: Any, tensors: tuple[Any, ...]) -> list[Any]:
    arrays: list[Array] = [tensor.handle.data for tensor in tensors]
    rank = arrays[0].ndim
    axis = operation.axis
    if axis is None:
        arrays, axis = [array.reshape(-1) for array in arrays], 0
    while (length := arrays[0].shape[axis]) > 1:
        halves = [np.split(array, [length // 2], axis) for array in arrays]
        left, right = (_tensors(operation, [half[side] for half in halves], tensors) for side in (0, 1))
        arrays = [np.reshape(array, halves[0][0].shape) for array in _combined(operation, left, right)]
    if not operation.keep_dims:
        arrays = [np.squeeze(array, axis) for array in arrays]
    elif operation.axis is None:
        arrays = [array.reshape((1,) * rank) for array in arrays]
    return _tensors(operation, arrays, tensors)


def _scan(operation: Any, tensors: tuple[Any, ...]) -> list[Any]:
    axis = operation.axis
    arrays: list[Array] = [tensor.handle.data for tensor in tensors]
    if operation.reverse:
        arrays = [np.flip(array, axis) for array in arrays]
    length = arrays[0].shape[axis]
    position = np.arange(length).reshape([-1 if dim == axis % arrays[0].ndim else 1 for dim in range(arrays[0].ndim)])
    distance = 1
    while distance < length:
        earlier = [np.roll(array, distance, axis) for array in arrays]
        merged = _combined(operation, _tensors(operation, earlier, tensors), _tensors(operation, arrays, tensors))
        arrays = [np.where(position < distance, old, new.reshape(old.shape)) for old, new in zip(arrays, merged, strict=True)]
        distance *= 2
    if operation.reverse:
        arrays = [np.flip(array, axis) for array in arrays]
    return _tensors(operation, arrays, tensors)
