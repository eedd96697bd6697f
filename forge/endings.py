"""The results of a random function: one to three of its values, each with a dtype."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from forge.chain import Chain, is_input, runs_over
from forge.layouts import FLOATS
from kmint_tui.graph import values as v
from kmint_tui.graph import views
from kmint_tui.graph.aten.pointwise import binary, unary
from kmint_tui.graph.program import OutOfScope
from kmint_tui.graph.sizes import Size
from kmint_tui.graph.values import Value


def end(chain: Chain, reductions: int) -> list[Value]:
    """The results of a chain with this many reductions. Unused values are the most likely."""
    rng, places = chain.rng, chain.layout.places
    wide = [one for one in chain.pool if runs_over(one, places)]
    first = chain.pool[-1]
    others = [one for one in chain.unused if one is not first and not is_input(one)]
    if others and rng.random() < 0.6:
        with suppress(OutOfScope):
            first = binary(rng.choice(("add", "mul", "sub")), first, others[-1])
    outputs = [_last(chain, first)]
    roll = rng.random()
    if chain.together is not None:
        return _joined(chain, *chain.together)
    if roll < 0.16 and reductions:
        rows = [one for one in chain.pool if not runs_over(one, places) and not is_input(one)]
        outputs += [_last(chain, rng.choice(rows))] if rows else []
    elif roll < 0.26 and len(wide) > 2:
        other = rng.choice(wide[:-1])
        outputs += [] if is_input(other) or other is first else [_last(chain, other)]
    elif roll < 0.34 and wide:
        outputs = _joined(chain, rng.choice(wide[-3:]), rng.choice(chain.pool))
    elif roll < 0.40:
        outputs = [_total(chain, first)]
    elif roll < 0.43 and wide:
        total = _total(chain, first)
        op = rng.choice(("mul", "div", "sub"))
        outputs = [_last(chain, binary(op, rng.choice(wide), total))]
    elif roll < 0.49 and wide:
        outputs = _unlike(chain, rng.choice(wide[-3:]))
    elif roll < 0.57:
        # As in a backward pass or an optimizer's step: several results of one computation.
        more = [one for one in chain.pool[-6:-1] if not is_input(one) and one is not first]
        outputs += [_last(chain, one) for one in rng.sample(more, min(len(more), 2))]
    rng.shuffle(outputs)
    return outputs[:3]


def _total(chain: Chain, value: Value) -> Value:
    """One number from all elements, with the usual operations after it."""
    rng, x = chain.rng, v.to_float(value)
    if rng.random() < 0.5:
        total = v.mean(x, None)
    else:
        total = v.reduce(rng.choice(("sum", "sum", "max")), x, None)
    if rng.random() < 0.25:
        labels = chain.drawn.tensor(chain.layout.main[:1], "int64")
        counted = v.reduce("sum", v.pointwise("to_int", binary("ne", labels, -100)), None)
        return binary("div", total, counted)
    for _ in range(rng.choice((0, 0, 1, 2, 3))):
        op = rng.choice(("mul", "add", "sqrt", "log", "other"))
        if op in ("sqrt", "log"):
            total = unary(op, binary("add", unary("abs", total), 1e-6))
        elif op == "other":
            total = binary("add", total, v.mean(v.to_float(rng.choice(chain.pool)), None))
        else:
            total = binary(op, total, chain.number())
    return total


def _last(chain: Chain, value: Value) -> Value:
    """The value in the dtype of a result; now and then a quantised one."""
    rng = chain.rng
    if value.kind == "b":
        return replace(value, dtype="bool")
    if value.kind == "i":
        return replace(value, dtype="int64")
    if rng.random() < 0.07 and len(value.dims):
        whole = unary("round", value)
        whole = binary("minimum", binary("maximum", whole, -128.0), 127.0)
        return replace(v.pointwise("to_int", whole), dtype="int8")
    return replace(value, dtype=rng.choice(FLOATS))


def _unlike(chain: Chain, value: Value) -> list[Value]:
    """A value next to a tensor of another length, as after a partial rotation."""
    if not value.dims or not value.dims[-1]:
        return [_last(chain, value)]
    length = Size.of(chain.rng.choice((1, 3, 5, 7)))
    sizes = value.sizes
    piece = v.to_float(chain.drawn.tensor([*sizes[:-1], length]))
    pair = [v.to_float(value), piece]
    chain.rng.shuffle(pair)
    return [replace(views.concatenate(pair, len(sizes) - 1), dtype="float32")]


def _joined(chain: Chain, value: Value, other: Value) -> list[Value]:
    """Two values put together: halves or pairs."""
    if not runs_over(other, chain.layout.places) or not value.dims or not value.dims[-1]:
        other = unary("neg", value)
    value, other = v.to_float(value), v.to_float(other)
    aligned, dims = v.align(value, other)
    if not dims or not dims[-1]:
        raise OutOfScope("nothing to put together")
    last = len(dims) - 1
    pair = [replace(one, dims=dims) for one in aligned]
    if chain.rng.random() < 0.6:
        return [replace(views.concatenate(pair, last), dtype="float32")]
    stacked = views.stack(pair, last + 1)
    sizes = stacked.sizes
    flat = views.reshape(stacked, [*sizes[:-2], sizes[-2] * sizes[-1]])
    return [replace(flat, dtype="float32")]
