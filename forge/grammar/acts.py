"""The 19 activations as Triton statements that turn a float32 value into itself activated, each in exact forms.

`v` is the variable's name. No form overflows to NaN: exponentials of large positive arguments are clamped or end in a
harmless infinity (x / inf, or an unselected branch of `tl.where`). tanh is written with sigmoid or exp, as Triton has none;
mish needs one exponential, as tanh(log(1 + e)) = n / (n + 2) with n = e * (e + 2).
"""

from __future__ import annotations

import re

_VALUE = re.compile(r"\bv\b")

_FORMS: dict[str, tuple[tuple[str, ...], ...]] = {
    "gelu": (
        ("u = 0.7978845608 * (v + 0.044715 * v * v * v)", "v = v * tl.sigmoid(2.0 * u)"),
        ("v = v * tl.sigmoid(1.5957691216 * (v + 0.044715 * v * v * v))",),
        ("u = 1.5957691216 * v * (1.0 + 0.044715 * v * v)", "v = v / (1.0 + tl.exp(-u))"),
    ),
    "silu": (("v = v * tl.sigmoid(v)",), ("v = v / (1.0 + tl.exp(-v))",)),
    "relu2": (("v = tl.maximum(v, 0.0)", "v = v * v"), ("t = tl.maximum(v, 0.0)", "v = t * t")),
    "tanh": (
        ("v = 2.0 * tl.sigmoid(2.0 * v) - 1.0",),
        ("e = tl.exp(-2.0 * tl.abs(v))", "t = (1.0 - e) / (1.0 + e)", "v = tl.where(v >= 0, t, -t)"),
    ),
    "sigmoid": (("v = tl.sigmoid(v)",), ("v = 1.0 / (1.0 + tl.exp(-v))",)),
    "relu": (("v = tl.maximum(v, 0.0)",), ("v = tl.where(v > 0, v, 0.0)",)),
    "square": (("v = v * v",),),
    "abs": (("v = tl.abs(v)",), ("v = tl.where(v < 0, -v, v)",)),
    "softsign": (("v = v / (1.0 + tl.abs(v))",),),
    "hardsigmoid": (("v = tl.minimum(tl.maximum(v + 3.0, 0.0), 6.0) / 6.0",),),
    "hardswish": (
        ("v = v * tl.minimum(tl.maximum(v + 3.0, 0.0), 6.0) / 6.0",),
        ("t = tl.minimum(tl.maximum(v + 3.0, 0.0), 6.0)", "v = v * t / 6.0"),
    ),
    "leaky_relu": (("v = tl.where(v > 0, v, 0.01 * v)",), ("v = tl.maximum(v, 0.01 * v)",)),
    "relu6": (("v = tl.minimum(tl.maximum(v, 0.0), 6.0)",),),
    "hardtanh": (("v = tl.minimum(tl.maximum(v, -1.0), 1.0)",),),
    "elu": (("v = tl.where(v > 0, v, tl.exp(v) - 1.0)",), ("v = tl.where(v > 0, v, tl.exp(tl.minimum(v, 0.0)) - 1.0)",)),
    "selu": (
        ("v = 1.0507009873554805 * tl.where(v > 0, v, 1.6732632423543772 * (tl.exp(v) - 1.0))",),
        ("t = 1.6732632423543772 * (tl.exp(tl.minimum(v, 0.0)) - 1.0)", "v = 1.0507009873554805 * tl.where(v > 0, v, t)"),
    ),
    "softplus": (
        ("v = tl.where(v > 20.0, v, tl.log(1.0 + tl.exp(tl.minimum(v, 20.0))))",),
        ("v = tl.maximum(v, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(v)))",),
    ),
    "mish": (("e = tl.exp(tl.minimum(v, 20.0))", "t = e * (e + 2.0)", "v = v * (t / (t + 2.0))"),),
    "gelu_erf": (("v = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))",),),
}
ACTS = tuple(_FORMS)


def act_lines(act: str, value: str, form: int) -> list[str]:
    """The statements of one activation on variable `value`. `form` picks a form, modulo their number."""
    forms = _FORMS[act]
    return [_VALUE.sub(value, line) for line in forms[form % len(forms)]]
