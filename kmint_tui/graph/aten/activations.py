"""Activations and bounds, written in the operations of the vocabulary."""

from __future__ import annotations

from typing import Any

from kmint_tui.graph.aten.pointwise import binary, unary, where
from kmint_tui.graph.aten.table import entry
from kmint_tui.graph.values import Value


@entry("gelu")
def _gelu(x: Value, approximate: str = "none") -> Value:
    return unary("gelu_tanh" if approximate == "tanh" else "gelu", x)


@entry("mish")
def _mish(x: Value) -> Value:
    return binary("mul", x, unary("tanh_softplus", x))


@entry("softplus")
def _softplus(x: Value, beta: float = 1, threshold: float = 20) -> Value:
    # The vocabulary's softplus is exact, so it needs no threshold.
    soft = unary("softplus", x if beta == 1 else binary("mul", x, beta))
    return soft if beta == 1 else binary("div", soft, beta)


@entry("log_sigmoid_forward", "log_sigmoid")
def _log_sigmoid(x: Value) -> tuple[Value, Value]:
    found = unary("neg", unary("softplus", unary("neg", x)))
    return found, found


@entry("elu")
def _elu(x: Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Value:
    factor = alpha if scale == 1 else binary("mul", alpha, scale)
    inner = x if input_scale == 1 else binary("mul", x, input_scale)
    above = x if scale == 1 else binary("mul", x, scale)
    below = binary("mul", unary("expm1", inner), factor)
    return where(binary("gt", x, 0.0), above, below)


@entry("leaky_relu")
def _leaky_relu(x: Value, negative_slope: float = 0.01) -> Value:
    return where(binary("gt", x, 0.0), x, binary("mul", x, negative_slope))


@entry("prelu", "_prelu_kernel")
def _prelu(x: Value, weight: Value) -> Value:
    return where(binary("gt", x, 0.0), x, binary("mul", x, weight))


@entry("clamp", "clip")
def _clamp(x: Value, min: Any = None, max: Any = None) -> Value:  # noqa: A002 (ATen's names)
    made = x if min is None else binary("maximum", x, min)
    return made if max is None else binary("minimum", made, max)


@entry("hardtanh")
def _hardtanh(x: Value, min_val: Any = -1.0, max_val: Any = 1.0) -> Value:
    return _clamp(x, min_val, max_val)


@entry("clamp_min")
def _clamp_min(x: Value, low: Any) -> Value:
    return _clamp(x, low)


@entry("clamp_max")
def _clamp_max(x: Value, high: Any) -> Value:
    return _clamp(x, None, high)


@entry("relu6")
def _relu6(x: Value) -> Value:
    return _clamp(x, 0.0, 6.0)


@entry("hardsigmoid")
def _hardsigmoid(x: Value) -> Value:
    return binary("mul", _relu6(binary("add", x, 3.0)), 1 / 6)


@entry("hardswish")
def _hardswish(x: Value) -> Value:
    return binary("mul", binary("mul", x, _relu6(binary("add", x, 3.0))), 1 / 6)
