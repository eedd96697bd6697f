"""Values: tensors that a function computes, and the operations on their elements, as in PyTorch.

A value is an expression and, for each dimension, its axes. A dimension of size one has none.
Nothing is computed here, and `stages.py` decides about loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kmint_tui.graph.axes import Axis, Index, all_leaves, size_of, unite
from kmint_tui.graph.expressions import (
    Constant,
    Expression,
    Load,
    Position,
    Reduce,
    Scalar,
    Scan,
    free_axes,
    substitute,
)
from kmint_tui.graph.program import OutOfScope
from kmint_tui.graph.simplify import simplified
from kmint_tui.graph.sizes import Size
from kmint_tui.graph.vocabulary import Kind, result_kind

Dims = tuple[tuple[Axis, ...], ...]


@dataclass(frozen=True, eq=False)
class Value:
    """One tensor. `dtype` is torch's name for it, without the prefix."""

    expression: Expression
    dims: Dims
    dtype: str = "float32"

    @property
    def sizes(self) -> list[Size]:
        """The size of each dimension."""
        return [size_of(axes) for axes in self.dims]

    @property
    def kind(self) -> Kind:
        """The kind of its elements."""
        return self.expression.kind


def kind_of_dtype(dtype: str) -> Kind:
    """The kind of a dtype. Raises OutOfScope for complex, double and quantised ones."""
    if dtype in ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
        return "f"
    if dtype in ("int8", "uint8", "int16", "int32", "int64"):
        return "i"
    if dtype == "bool":
        return "b"
    raise OutOfScope(f"tensors of dtype {dtype}")


def tensor(name: str, sizes: Sequence[Size], dtype: str) -> Value:
    """An argument's tensor, contiguous. Raises OutOfScope for an unknown dtype."""
    dims = tuple(() if size.value == 1 else (Axis(size),) for size in sizes)
    return Value(
        Load(kind_of_dtype(dtype), name, tuple(Index.along(axes) for axes in dims)), dims, dtype
    )


def constant(value: float | int | bool, dtype: str | None = None) -> Value:
    """A number of the code, as a tensor without dimensions."""
    kind: Kind = "b" if isinstance(value, bool) else "i" if isinstance(value, int) else "f"
    kind = kind_of_dtype(dtype) if dtype else kind
    number = float(value) if kind == "f" else bool(value) if kind == "b" else int(value)
    return Value(
        Constant(kind, number), (), dtype or {"f": "float32", "i": "int64", "b": "bool"}[kind]
    )


def scalar(value: str | Size, kind: Kind = "f") -> Value:
    """A number that the host knows."""
    return Value(Scalar(kind, value), (), "float32" if kind == "f" else "int64")


def fresh(value: Value, axes: set[Axis]) -> Value:
    """The same tensor with new axes in place of some axes."""
    renamed = {axis: Axis(axis.size, axis.unrolled) for axis in axes}
    dims = tuple(tuple(renamed.get(leaf, leaf) for leaf in all_leaves(dim)) for dim in value.dims)
    return replace(
        value,
        expression=substitute(value.expression, {a: Index.along([b]) for a, b in renamed.items()}),
        dims=dims,
    )


def align(*values: Value) -> tuple[tuple[Value, ...], Dims]:
    """The values with the dimensions of all, united as broadcasting does."""
    width = max(len(value.dims) for value in values)
    made: list[Value] = []
    whole: list[tuple[Axis, ...]] = [()] * width
    for value in values:
        padded = ((),) * (width - len(value.dims)) + value.dims
        clash = {
            leaf
            for place, dim in enumerate(padded)
            for leaf in all_leaves(dim)
            if any(leaf in all_leaves(other) for at, other in enumerate(whole) if at != place)
        }
        if clash:
            value = fresh(value, clash)
            padded = ((),) * (width - len(value.dims)) + value.dims
        for place, dim in enumerate(padded):
            if whole[place] and dim:
                unite(list(whole[place]), list(dim))
            whole[place] = whole[place] or dim
        made.append(replace(value, dims=padded))
    dims = tuple(tuple(all_leaves(dim)) for dim in whole)
    seen = [leaf for dim in dims for leaf in dim]
    if len(seen) != len(set(seen)):
        raise OutOfScope("one dimension is run over twice, as by a diagonal")
    return tuple(made), dims


def pointwise(op: str, *values: Value, dtype: str | None = None) -> Value:
    """An operation of the vocabulary on broadcast values."""
    aligned, dims = align(*values)
    kind = result_kind(op, tuple(value.kind for value in aligned))
    made = simplified(op, kind, tuple(value.expression for value in aligned))
    return Value(made, dims, dtype or {"f": "float32", "i": "int64", "b": "bool"}[kind])


def to_float(value: Value) -> Value:
    """The value as float32 numbers."""
    return value if value.kind == "f" else replace(pointwise("to_float", value), dims=value.dims)


def reduce(op: str, value: Value, places: Sequence[int] | None, *, keep: bool = False) -> Value:
    """A reduction along dimensions; by default along all of them.

    A sum along a dimension of equal elements is a product with their number.
    """
    count = len(value.dims)
    chosen = sorted({place % count for place in places}) if places and count else list(range(count))
    axes = tuple(leaf for place in chosen for leaf in all_leaves(value.dims[place]))
    present = free_axes(value.expression)
    found = value.expression
    missing = [axis for axis in axes if axis not in present]
    if missing and op == "sum":
        found = simplified("mul", found.kind, (found, Scalar(found.kind, size_of(missing))))
    kind = result_kind(op, (found.kind,))
    bound = tuple(axis for axis in axes if axis in present)
    if op in ("argmax", "argmin"):
        if missing:
            raise OutOfScope(f"{op} along a dimension of equal elements")
        bound = axes
    if bound or op in ("argmax", "argmin"):
        found = Reduce.of(kind, op, bound, found)
    dims = tuple(
        () if place in chosen else dim
        for place, dim in enumerate(value.dims)
        if keep or place not in chosen
    )
    return Value(found, dims, value.dtype if kind == value.kind else "int64")


def mean(
    value: Value, places: Sequence[int] | None, *, keep: bool = False, correction: float = 0.0
) -> Value:
    """The sum along dimensions over their number of elements less `correction`."""
    value = to_float(value)
    count = len(value.dims)
    chosen = {place % count for place in places} if places and count else set(range(count))
    number = scalar(size_of([axis for place in chosen for axis in value.dims[place]]))
    if correction:
        number = pointwise("sub", number, constant(float(correction)))
    return pointwise("div", reduce("sum", value, places, keep=keep), number)


def scan(op: str, value: Value, place: int) -> Value:
    """A running sum or product along a dimension."""
    dim = tuple(all_leaves(value.dims[place]))
    if not dim:
        return value
    present = free_axes(value.expression)
    if any(axis.unrolled for axis in dim) or not set(dim) <= present:
        raise OutOfScope("a scan along a dimension put together from pieces")
    kind = result_kind(op, (value.kind,))
    return replace(value, expression=Scan(kind, op, dim, value.expression))


def positions(value: Value, place: int) -> Value:
    """The position of each element along a dimension of `value`, with the same number of
    dimensions.
    """
    axes = value.dims[place]
    count = len(value.dims)
    dims = tuple(axes if number == place % count else () for number in range(count))
    return Value(Position("i", Index.along(axes)) if axes else Constant("i", 0), dims, "int64")


def arange(size: Size, start: float = 0, step: float = 1, dtype: str = "int64") -> Value:
    """Consecutive numbers."""
    dim: tuple[Axis, ...] = () if size.value == 1 else (Axis(size),)
    found = (
        Value(Position("i", Index.along(dim)), (dim,), "int64")
        if dim
        else Value(Constant("i", 0), (dim,), "int64")
    )
    if kind_of_dtype(dtype) == "f":
        found = replace(to_float(found), dtype=dtype)
    if step != 1:
        found = pointwise("mul", found, constant(step))
    return pointwise("add", found, constant(start)) if start else found
