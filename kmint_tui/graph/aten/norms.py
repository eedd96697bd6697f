"""Normalisations, which PyTorch keeps whole when it traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kmint_tui.graph import values as v
from kmint_tui.graph.aten.pointwise import binary, unary
from kmint_tui.graph.aten.table import entry, size
from kmint_tui.graph.values import Value
from kmint_tui.graph.views import reshape

_SMALLEST = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""PyTorch's epsilon of a dtype, the default of RMS norm; 2**-23 for float32."""


def normalized(x: Value, places: Sequence[int], eps: float) -> tuple[Value, Value, Value]:
    """`x` less its mean, over its deviation; with the mean and one over the deviation."""
    middle = v.mean(x, places, keep=True)
    away = binary("sub", x, middle)
    inverse = unary(
        "rsqrt", binary("add", v.mean(binary("mul", away, away), places, keep=True), eps)
    )
    return binary("mul", away, inverse), middle, inverse


def _scaled(x: Value, weight: Value | None, bias: Value | None) -> Value:
    made = x if weight is None else binary("mul", x, weight)
    return made if bias is None else binary("add", made, bias)


def _trailing(x: Value, shape: Sequence[Any]) -> list[int]:
    """The trailing dimensions that a normalized shape covers."""
    return list(range(len(x.dims) - len(shape), len(x.dims)))


@entry("native_layer_norm")
def _layer_norm(
    x: Value, shape: Sequence[Any], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    found, middle, inverse = normalized(x, _trailing(x, shape), eps)
    return replace(_scaled(found, weight, bias), dtype=x.dtype), middle, inverse


@entry("_fused_rms_norm", "rms_norm")
def _rms_norm(
    x: Value, shape: Sequence[Any], weight: Value | None = None, eps: float | None = None
) -> tuple[Value, Value]:
    small = eps if eps is not None else _SMALLEST.get(x.dtype, 2.0**-23)
    square = v.mean(binary("mul", x, x), _trailing(x, shape), keep=True)
    inverse = unary("rsqrt", binary("add", square, small))
    return replace(_scaled(binary("mul", x, inverse), weight, None), dtype=x.dtype), inverse


@entry("native_group_norm")
def _group_norm(
    x: Value,
    weight: Value | None,
    bias: Value | None,
    n: Any,
    channels: Any,
    inner: Any,
    groups: int,
    eps: float,
) -> tuple[Value, Value, Value]:
    sizes = x.sizes
    count = size(groups)
    in_group = sizes[1].divided_by(count)
    wide = reshape(x, [sizes[0], count, in_group, *sizes[2:]])
    found, middle, inverse = normalized(wide, list(range(2, len(wide.dims))), eps)
    weight, bias = (
        None if one is None else _channels(reshape(one, [count, in_group]), len(sizes) - 2)
        for one in (weight, bias)
    )
    made = reshape(_scaled(found, weight, bias), sizes)
    return replace(made, dtype=x.dtype), middle, inverse


def _channels(weight: Value, behind: int) -> Value:
    """A value for each channel, with trailing dimensions of size one."""
    return replace(weight, dims=(*weight.dims, *((),) * behind))


@entry("_native_batch_norm_legit_no_training")
def _batch_norm_eval(
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    var: Value,
    momentum: float,
    eps: float,
) -> tuple[Value, None, None]:
    behind = len(x.dims) - 2
    away = binary("sub", x, _channels(mean, behind))
    found = binary("mul", away, unary("rsqrt", binary("add", _channels(var, behind), eps)))
    return replace(_by_channel(found, weight, bias), dtype=x.dtype), None, None


@entry(
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "native_batch_norm",
    "_batch_norm_with_update",
)
def _batch_norm(
    x: Value, weight: Value | None, bias: Value | None, *rest: Any
) -> tuple[Value, Value, Value, None, None]:
    places = [place for place in range(len(x.dims)) if place != 1]
    found, middle, inverse = normalized(x, places, rest[-1])
    return replace(_by_channel(found, weight, bias), dtype=x.dtype), middle, inverse, None, None


def _by_channel(x: Value, weight: Value | None, bias: Value | None) -> Value:
    behind = len(x.dims) - 2
    weight, bias = (None if one is None else _channels(one, behind) for one in (weight, bias))
    return _scaled(x, weight, bias)
