"""The operations on elements of a random function: of one argument, of several, by a condition."""

from __future__ import annotations

from forge.chain import Chain
from kmint_tui.graph import values as v
from kmint_tui.graph.aten.pointwise import binary, unary, where
from kmint_tui.graph.sizes import Size
from kmint_tui.graph.values import Value

_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")
_UNARY = {
    "exp": 7, "log": 4, "sqrt": 4, "rsqrt": 4, "sigmoid": 6, "tanh": 6, "silu": 6, "gelu": 4,
    "gelu_tanh": 4, "softplus": 4, "relu": 6, "abs": 6, "neg": 6, "square": 8, "cube": 2, "mish": 2,
    "sin": 2, "cos": 2, "erf": 2, "expm1": 2, "log1p": 3, "recip": 3, "round": 2, "floor": 1,
    "ceil": 1, "trunc": 1, "sign": 1, "exp2": 1, "log2": 1, "clamp": 5, "pow": 2, "elu": 2,
    "leaky": 2,
}  # fmt: skip
"""Operations of one argument by their weights."""


def steps(chain: Chain, count: int) -> None:
    """Draw several operations, one after the other."""
    for _ in range(count):
        _step(chain)


def _step(chain: Chain) -> None:
    rng, x = chain.rng, chain.draw()
    roll = rng.random()
    if roll < 0.34:
        chain.keep(_unary(chain, x), x)
    elif roll < 0.56:
        op = rng.choices(_BINARY, (5, 4, 6, 2, 1, 1))[0]
        number = chain.number()
        left, right = (x, number) if rng.random() < 0.75 or op == "div" else (number, x)
        chain.keep(binary(op, left, right), x)
    elif roll < 0.76:
        y = chain.draw()
        op = rng.choices(_BINARY, (5, 5, 7, 2, 1, 1))[0]
        if y is x and op in ("sub", "maximum", "minimum", "div"):
            op = "mul"
        chain.keep(binary(op, x, y), x, y)
    elif roll < 0.93:
        y = chain.other()
        op = rng.choices(("mul", "add", "sub", "div"), (6, 5, 2, 1))[0]
        chain.keep(binary(op, x, y) if rng.random() < 0.85 else binary(op, y, x), x)
    else:
        chain.keep(_choice(chain, x), x)


def _unary(chain: Chain, x: Value) -> Value:
    rng = chain.rng
    if x.kind != "f":
        return v.to_float(x)
    op = rng.choices(tuple(_UNARY), tuple(_UNARY.values()))[0]
    match op:
        case "square":
            return binary("mul", x, x)
        case "cube":
            return binary("pow", x, 3.0)
        case "pow":
            exponent = rng.choice((1.5, 0.25, 2.5, chain.constant()))
            return binary("pow", unary("abs", x), exponent)
        case "mish":
            return binary("mul", x, unary("tanh_softplus", x))
        case "clamp":
            low, high = sorted((chain.constant(), chain.constant()))
            made = binary("maximum", x, low) if rng.random() < 0.85 else x
            return binary("minimum", made, high) if rng.random() < 0.8 or made is x else made
        case "elu":
            below = binary("mul", unary("expm1", x), chain.constant())
            return where(binary("gt", x, 0.0), x, below)
        case "leaky":
            return where(binary("gt", x, 0.0), x, binary("mul", x, chain.constant()))
        case "log" | "log2":
            if rng.random() < 0.6:
                x = binary("add", unary("abs", x), abs(chain.constant()) + 1e-6)
        case "sqrt" | "rsqrt" | "recip":
            if rng.random() < 0.6:
                x = binary("add", x, abs(chain.constant()))
    return unary(op, x)


def _choice(chain: Chain, x: Value) -> Value:
    """A value that a condition chooses."""
    roll = chain.rng.random()
    if roll < 0.35:
        return _masked(chain, x)
    if roll < 0.75:
        return _compared(chain, x)
    if roll < 0.9:
        return _by_place(chain, x)
    return _by_integers(chain, x)


def _masked(chain: Chain, x: Value) -> Value:
    """Choose by a tensor of booleans."""
    rng = chain.rng
    mask = chain.drawn.tensor(chain.layout.main, "bool")
    if rng.random() < 0.5:
        return where(mask, x, rng.choice((0.0, float("-inf"), chain.constant())))
    return where(mask, chain.constant(), x)


def _compared(chain: Chain, x: Value) -> Value:
    """Choose by a comparison with another value or a number."""
    rng = chain.rng
    y = chain.draw() if rng.random() < 0.5 else chain.number()
    condition = binary(rng.choice(("lt", "le", "gt", "ge", "eq", "ne")), x, y)
    if rng.random() < 0.3:
        op = rng.choice(("and", "or"))
        condition = v.pointwise(op, condition, binary("lt", x, chain.constant()))
    if rng.random() < 0.15:
        return v.to_float(condition)
    if rng.random() < 0.15:
        condition = v.pointwise("not", condition)
    return where(condition, chain.draw(), chain.number() if rng.random() < 0.5 else x)


def _by_place(chain: Chain, x: Value) -> Value:
    """Choose by the place of an element, as in a causal mask, or add a term that grows with
    distance.
    """
    rng = chain.rng
    place = rng.randrange(len(chain.layout.main))
    position = v.positions(x, place % len(x.dims))
    limit = chain.size() if rng.random() < 0.3 else v.constant(rng.randint(0, 40))
    if rng.random() < 0.5 and len(x.dims) > 1:
        other = v.positions(x, (place - 1) % len(x.dims))
        if rng.random() < 0.3:
            distance = v.to_float(binary("sub", position, other))
            return binary("add", x, binary("mul", distance, chain.other()))
        limit = binary("add", other, rng.choice((0, 1, 1, -1, 2)))
    inside = binary(rng.choice(("lt", "le", "ge")), position, limit)
    return where(inside, x, rng.choice((0.0, float("-inf"))))


def _by_integers(chain: Chain, x: Value) -> Value:
    """Choose by a mask of integers, or use integers as factors or terms."""
    rng, main = chain.rng, chain.layout.main
    whole = rng.choice(("int64", "int8", "int32", "bool"))
    if rng.random() < 0.5:
        dims = [size if rng.random() < 0.6 else Size.of(1) for size in main]
        mask = chain.drawn.tensor(dims, whole)
        return where(binary("eq", mask, 0), rng.choice((float("-inf"), 0.0, -1e4)), x)
    return binary(rng.choice(("mul", "add")), v.to_float(chain.drawn.tensor(main, whole)), x)
