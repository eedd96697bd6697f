"""Replaces the operations of Triton's interpreter whose results differ from a GPU's.

Differences of the interpreter, in all versions unless noted:

- It keeps bfloat16 as raw 16-bit integers and adds, compares, negates and sums those integers.
- It truncates in conversions, and overflows in conversions to 8-bit floats.
- It gives an arbitrary integer for a float that no integer holds.
- It sums booleans with "or"; a GPU uses "xor".
- Its `min` and `max` propagate a NaN; the hardware drops it.
- It returns zero for an integer divided by zero or shifted by too many bits.
- A negative index counts from the end.
- A dot in TF32 keeps all bits.
- It keeps subnormal numbers where the GPU flushes them to zero.
- `fma` rounds twice.
- A reduction with a custom combiner handles one element at a time.

Triton 3.9 corrects a part of these. Here bfloat16 goes through float32, with rounding to nearest
even after every operation. Every reduction or scan is a tree of calls to its combiner.
`NumericFreedom` chooses where a compiler is free to choose. float32 arithmetic stays NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray

from referee.interpreter import reductions
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
from referee.interpreter.numeric_freedom import NumericFreedom
from referee.interpreter.undefined_results import UNDEFINED, Undefined, check_indices

Array = NDArray[Any]

EXACT = "exact"
"""Attribute of a product that holds its unrounded float64 value; no compiler hint has this name."""

_CONTRACTED = (tl.float16, tl.bfloat16, tl.float32)
_FLOATS8 = {tl.float8e4nv: "float8_e4m3fn", tl.float8e5: "float8_e5m2"}
_FLUSHED = "exp2 sqrt rsqrt sin erf floor ceil".split()
"""Operations whose sm_90 PTX (Triton 3.6 and 3.7) flushes subnormal inputs and results to zero.

`exp`, `log` and `/` do not flush.
"""
_SHAPED = "reshape expand_dims broadcast splat trans".split()
_CUT = {tl.float16: cut_to_float16, tl.bfloat16: cut_to_bfloat16, tl.float8e5: cut_to_float8e5}
_PRODUCTS_PER_ROUNDING = 16
"""Number of products a tensor core accumulates in float16 between roundings (`mma.m16n8k16`)."""
_LOG2_E = 1.4426950408889634


def _bits(data: Array) -> Array:
    found: Array = data.view(f"u{data.itemsize}")
    return found


def install(interpreter: Any, freedom: NumericFreedom) -> None:
    """Patches the `triton.runtime.interpreter` module given, once per process."""
    GpuSemantics(interpreter, freedom).install()


class GpuSemantics:
    """The GPU's meaning of operations, as replacements for methods of `InterpreterBuilder`."""

    def __init__(self, interpreter: Any, freedom: NumericFreedom) -> None:
        self._interpreter, self._freedom = interpreter, freedom
        self._handle = interpreter.TensorHandle
        self._class = interpreter.InterpreterBuilder
        self._builder = interpreter.interpreter_builder
        self._numpy_dtypes: dict[str, Any] = {}
        self._triton_dtype = interpreter._get_np_dtype
        # The original methods: the replacements call them.
        native = self._class
        self._native_binary, self._native_ternary = native.binary_op, native.ternary_op
        self._native_cast, self._native_convert = native.cast_impl, native.create_fp_to_fp
        self._native_dot, self._native_remainder = native.create_dot, native.create_frem
        self._native_exponential = native.create_exp
        self._native_gather, self._native_histogram = native.create_gather, native.create_histogram

    def install(self) -> None:
        """Replaces the methods, once per process."""
        self._interpreter._get_np_dtype = self.numpy_dtype
        self._replace("cast_impl", self.cast)
        self._replace("binary_op", self.binary)
        self._replace("ternary_op", self.ternary)
        self._replace("get_all_ones_value", self.all_ones)
        self._replace("get_bf16", self.bfloat16)
        for name in _FLUSHED:
            self._replace(f"create_{name}", self._flushing(self._native(name)))
        for name in _SHAPED:
            self._replace(f"create_{name}", self._shaping(self._native(name)))
        for name, undefined in UNDEFINED.items():
            self._replace(f"create_{name}", self._defined(undefined, self._native(name)))
        self._replace("create_sqrt", self._approximate_root(self._native("sqrt")))
        methods: dict[str, Callable[..., Any]] = {
            "fp_to_fp": self.convert,
            "gather": self.gather,
            "histogram": self.histogram,
            "frem": self.remainder,
            "exp": self.exponential,
            "clampf": self.clamp,
            "fma": self.fma,
            "dot": self.dot,
            "fneg": self.negated,
            "umulhi": self.high_product,
            "maxnumf": self.maximum,
            "minnumf": self.minimum,
        }
        for name, method in methods.items():
            self._replace(f"create_{name}", method)
        for operation in (self._interpreter.ReduceOps, self._interpreter.ScanOps):
            operation.apply_impl = lambda operation, tensors: reductions.apply(
                operation, tensors, self._freedom.relaxed
            )

    def _native(self, name: str) -> Callable[..., Any]:
        native: Callable[..., Any] = getattr(self._class, f"create_{name}")
        return native

    def _replace(self, name: str, method: Callable[..., Any]) -> None:
        setattr(self._class, name, lambda builder, *given, **named: method(*given, **named))

    def numpy_dtype(self, dtype: Any) -> Any:
        """The NumPy dtype of a Triton dtype or block type.

        The original makes a table of all dtypes at every call, and one operation calls it several
        times.
        """
        element = dtype.element_ty if isinstance(dtype, tl.block_type) else dtype
        if (found := self._numpy_dtypes.get(element.name)) is None:
            found = self._numpy_dtypes[element.name] = self._triton_dtype(element)
        return found

    def _decoded(self, operand: Any) -> Array:
        data: Array = operand.data
        return widen(data) if operand.dtype.scalar == tl.bfloat16 else data

    def _encoded(self, data: Array, dtype: Any) -> Any:
        if data.dtype == np.bool_:
            return self._handle(data, tl.int1)
        return self._handle(narrow(data) if dtype == tl.bfloat16 else data, dtype)

    def _rounded(self, values: Array, dtype: Any) -> Any:
        wanted = np.float32 if dtype == tl.bfloat16 else self.numpy_dtype(dtype)
        return self._encoded(values.astype(wanted), dtype)

    def cast(self, source: Any, target: Any) -> Any:
        """A conversion between types, with rounding to nearest even."""
        if source.dtype.scalar.is_fp8() or target.scalar.is_fp8():
            return self._native_cast(self._builder, source, target)
        data = self._decoded(source)
        if target.scalar == tl.bfloat16:
            return self._handle(narrow(data.astype(np.float32)), target.scalar)
        wanted = self.numpy_dtype(target)
        if data.dtype.kind != "f" or wanted.kind not in "iu":
            return self._handle(data.astype(wanted), target.scalar)
        found = to_integers(data, wanted)
        if (beyond := outside(data, wanted)).any():
            # A device defines these integers; for a compiler they are poison.
            found = self._freedom.undetermined(found, beyond, known=True)
        return self._handle(found, target.scalar)

    def convert(self, source: Any, target: Any, rounding: Any) -> Any:
        """A conversion between floats in a rounding mode. Raises Unsupported for other 8-bit
        floats than e4m3fn and e5m2.
        """
        given, wanted = source.dtype.scalar, target.scalar
        for dtype in (given, wanted):
            if dtype.is_fp8() and dtype not in _FLOATS8:
                raise Unsupported(f"conversions of {dtype}")
        if given in _FLOATS8:
            source = self._handle(from_float8(source.data, _FLOATS8[given]), tl.float32)
        modes = self._interpreter._ir.ROUNDING_MODE
        if rounding is None or rounding == modes.RTNE:
            if wanted in _FLOATS8:
                bits = to_float8(self._decoded(source), _FLOATS8[wanted])
                return self._handle(bits, wanted)
            return self.cast(source, target)
        if rounding != modes.RTZ or wanted not in _CUT:
            return self._native_convert(self._builder, source, target, rounding)
        return self._handle(_CUT[wanted](self._decoded(source)), wanted)

    def binary(self, left: Any, right: Any, operation: Any) -> Any:
        """An elementwise operation on two operands."""
        # NumPy adds booleans with "or" and refuses to subtract them.
        if operation in (np.add, np.subtract) and left.data.dtype == np.bool_:
            operation = np.logical_xor
        if (
            self._freedom.relaxed
            and left.dtype.scalar in _CONTRACTED
            and operation in (np.add, np.subtract, np.multiply)
        ):
            return self._contracted(left, right, operation)
        if left.dtype.scalar != tl.bfloat16:
            found = self._native_binary(self._builder, left, right, operation)
            # Triton gives a comparison the type of its operands; a splat of it then holds integers,
            # and no mask may hold integers.
            if found.data.dtype == np.bool_:
                return self._handle(found.data, tl.int1)
            return found
        return self._encoded(operation(self._decoded(left), self._decoded(right)), tl.bfloat16)

    def _contracted(self, left: Any, right: Any, operation: Any) -> Any:
        """A product that stays unrounded until it is added, as in a fused multiply-add.

        In a sum of two products the right one is rounded.
        """
        kind = left.dtype.scalar
        if operation is np.multiply:
            exact = self._decoded(left).astype(np.float64) * self._decoded(right)
            product = self._rounded(exact, kind)
            product.attr[EXACT] = exact
            return product
        if EXACT in left.attr:
            return self._rounded(operation(left.attr[EXACT], self._decoded(right)), kind)
        addend = right.attr.get(EXACT, self._decoded(right))
        return self._rounded(operation(self._decoded(left), addend), kind)

    def _shaping(self, native: Callable[..., Any]) -> Callable[..., Any]:
        """An operation that moves elements, and moves an unrounded product with them."""

        def reshape(*given: Any) -> Any:
            found = native(self._builder, *given)
            for source in given:
                if isinstance(source, self._handle) and EXACT in source.attr:
                    exact = self._handle(source.attr[EXACT], tl.float64)
                    parts = (exact if part is source else part for part in given)
                    found.attr[EXACT] = native(self._builder, *parts).data
            return found

        return reshape

    def _flushing(self, native: Callable[..., Any]) -> Callable[..., Any]:
        """An operation that flushes subnormal float32 inputs and results to zero."""

        def compute(given: Any) -> Any:
            if given.data.dtype != np.float32:
                return native(self._builder, given)
            found = native(self._builder, self._handle(flushed(given.data), tl.float32))
            return self._handle(flushed(found.data), tl.float32)

        return compute

    def _defined(self, undefined: Undefined, native: Callable[..., Any]) -> Callable[..., Any]:
        """An integer operation with arbitrary bits where its result is undefined."""

        def compute(left: Any, right: Any) -> Any:
            where = undefined(left.data, right.data, left.dtype.scalar.primitive_bitwidth)
            if not where.any():
                return native(self._builder, left, right)
            # 1 is a valid divisor and a valid shift.
            kind = right.dtype.scalar
            safe = self._handle(np.where(where, right.data.dtype.type(1), right.data), kind)
            found = native(self._builder, left, safe)
            data = self._freedom.undetermined(found.data, where)
            return self._handle(data, found.dtype.scalar)

        return compute

    def _approximate_root(self, native: Callable[..., Any]) -> Callable[..., Any]:
        """`sqrt.approx`, which may be off by one unit in the last place for an inexact root."""

        def compute(given: Any) -> Any:
            found = native(self._builder, given)
            if not self._freedom.relaxed or found.data.dtype != np.float32:
                return found
            inexact = np.isfinite(found.data) & (found.data.astype(np.float64) ** 2 != given.data)
            upper = np.nextafter(found.data, np.float32(np.inf))
            return self._handle(np.where(inexact, upper, found.data), found.dtype)

        return compute

    def gather(self, source: Any, indices: Any, axis: int) -> Any:
        """`tl.gather`. Raises IndexError for an index outside the axis."""
        check_indices(indices.data, source.data.shape[axis], "tl.gather")
        return self._native_gather(self._builder, source, indices, axis)

    def histogram(self, data: Any, bins: Any, mask: Any) -> Any:
        """`tl.histogram`. Raises IndexError for a value without a bin."""
        check_indices(data.data if mask is None else data.data[mask.data], bins, "tl.histogram")
        return self._native_histogram(self._builder, data, bins, mask)

    def negated(self, given: Any) -> Any:
        """The operand with its sign bit flipped. Triton has this operation from 3.8 on."""
        sign = _bits(given.data)
        flipped = sign ^ (sign.dtype.type(1) << (8 * sign.itemsize - 1))
        found = self._handle(flipped.view(given.data.dtype), given.dtype.scalar)
        if EXACT in given.attr:
            found.attr[EXACT] = -given.attr[EXACT]
        return found

    def high_product(self, left: Any, right: Any) -> Any:
        """The upper half of a product of unsigned integers, also for operands of a signed type."""
        unsigned = _bits(left.data).dtype
        wide = np.dtype(object if unsigned.itemsize == 8 else np.uint64)
        x, y = (_bits(side.data).astype(wide) for side in (left, right))
        product = np.asarray((x * y) >> wide.type(8 * unsigned.itemsize)).astype(unsigned)
        return self._handle(product.view(left.data.dtype), left.dtype.scalar)

    def all_ones(self, dtype: Any) -> Any:
        """An integer with all bits set."""
        return self._handle(np.array([-1]).astype(self.numpy_dtype(dtype)), dtype.scalar)

    def bfloat16(self, value: float) -> Any:
        """A bfloat16 constant."""
        return self._handle(narrow(np.array([value], np.float32)), tl.bfloat16)

    def maximum(self, left: Any, right: Any) -> Any:
        """The larger operand; the other one where one is NaN."""
        return self.binary(left, right, np.fmax)

    def minimum(self, left: Any, right: Any) -> Any:
        """The smaller operand; the other one where one is NaN."""
        return self.binary(left, right, np.fmin)

    def ternary(self, first: Any, second: Any, third: Any, operation: Any) -> Any:
        """An elementwise operation on three operands."""
        # A select moves bits, so it must not round through float32; its condition is no float.
        if operation is np.where or third.dtype.scalar != tl.bfloat16:
            return self._native_ternary(self._builder, first, second, third, operation)
        operands = (self._decoded(one) for one in (first, second, third))
        return self._encoded(operation(*operands), tl.bfloat16)

    def clamp(self, value: Any, low: Any, high: Any, propagate: Any) -> Any:
        """`tl.clamp`. Raises ValueError if the lower bound is above the upper one."""
        if (self._decoded(low) > self._decoded(high)).any():
            raise ValueError("tl.clamp has a lower bound above its upper one")
        if propagate == self._interpreter._ir.PROPAGATE_NAN.ALL:
            return self.ternary(value, low, high, np.clip)
        return self.ternary(value, low, high, lambda v, a, b: np.fmin(np.fmax(v, a), b))

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """`x * y + z`, rounded once."""
        product = self._decoded(x).astype(np.float64) * self._decoded(y)
        return self._rounded(product + self._decoded(z), z.dtype.scalar)

    def remainder(self, left: Any, right: Any) -> Any:
        """x - trunc(x / y) * y with a rounded quotient, as LLVM lowers it for NVPTX.

        The result is x where y is infinite.
        """
        if right.dtype.scalar == tl.float64:
            return self._native_remainder(self._builder, left, right)
        x = self._decoded(left).astype(np.float32)
        y = self._decoded(right).astype(np.float32)
        whole = np.trunc(x / y).astype(np.float64)
        found = np.where(np.isinf(y), x, (x - whole * y).astype(np.float32))
        return self._rounded(found, right.dtype.scalar)

    def exponential(self, given: Any) -> Any:
        """`exp`; for float32 a power of two of a rounded product, as Triton lowers it.

        The power is rounded once, from float64. NumPy's float32 power differs by one unit in the
        last place between processors.
        """
        if given.data.dtype != np.float32:
            return self._native_exponential(self._builder, given)
        power = np.exp2((given.data * np.float32(_LOG2_E)).astype(np.float64))
        return self._handle(power.astype(np.float32), given.dtype.scalar)

    def dot(self, a: Any, b: Any, d: Any, precision: Any, *rest: Any) -> Any:
        """`tl.dot`; if relaxed, a float16 sum is rounded after every tensor core instruction."""
        left, right = self._dot_operand(a, precision), self._dot_operand(b, precision)
        if not self._freedom.relaxed or d.dtype.scalar != tl.float16:
            return self._native_dot(self._builder, left, right, d, precision, *rest)
        for start in range(0, left.data.shape[-1], _PRODUCTS_PER_ROUNDING):
            part = slice(start, start + _PRODUCTS_PER_ROUNDING)
            x = self._handle(left.data[..., part], left.dtype)
            y = self._handle(right.data[..., part, :], right.dtype)
            d = self._native_dot(self._builder, x, y, d, precision, *rest)
        return d

    def _dot_operand(self, side: Any, precision: Any) -> Any:
        kind = side.dtype.scalar
        if kind == tl.bfloat16:
            return self._handle(self._decoded(side), tl.float32)
        if kind in _FLOATS8:
            return self._handle(from_float8(side.data, _FLOATS8[kind]), tl.float32)
        if kind == tl.float32 and precision == self._interpreter._ir.INPUT_PRECISION.TF32:
            return self._handle(truncate_to_tf32(side.data), tl.float32)
        return side
