"""The first values of a random function: its tensors, and usual views of them."""

from __future__ import annotations

from dataclasses import replace

from forge.chain import Chain
from kmint_tui.graph import values as v
from kmint_tui.graph import views
from kmint_tui.graph.aten.pointwise import binary, unary
from kmint_tui.graph.sizes import Size
from kmint_tui.graph.values import Value
from kmint_tui.graph.windows import put, rolled, windows

_FORMS = {
    "plain": 62,
    "halves": 10,
    "pairs": 5,
    "rotary": 7,
    "gather": 4,
    "flip": 3,
    "turned": 2,
    "columns": 2,
    "shift": 2,
    "whole": 3,
    "rolled": 4,
    "thirds": 4,
    "window": 4,
    "packed_bits": 3,
    "one_hot": 2,
    "written": 2,
}
"""Views of the main tensor by their weights."""
_NEWER = ("rolled", "thirds", "window", "packed_bits", "one_hot", "written")


def begin(chain: Chain) -> None:
    """Fill the pool of a chain."""
    rng, chosen = chain.rng, chain.layout
    form = rng.choices(tuple(_FORMS), tuple(_FORMS.values()))[0]
    dims = list(chosen.main)
    last = chosen.places[-1] if len(chosen.places) == 1 else len(dims) - 1
    if form in ("halves", "pairs", "rotary") and last == len(dims) - 1:
        chain.packed = form
        packed = chain.parts(chosen.main)
        rng.shuffle(packed)
        chain.pool += packed
        if form == "rotary":
            _rotate(chain, *packed)
    elif (form == "turned" and len(dims) == 2) or (dims[-1] == dims[-2] and rng.random() < 0.2):
        chain.pool += _turned(chain, dims)
    elif form == "columns" and len(dims) == 2:
        width = rng.choice((2, 3, 4, 6, 8))
        x = chain.drawn.tensor((dims[0], dims[1], Size.of(width)))
        columns = rng.sample(range(width), min(width, rng.randint(2, 4)))
        chain.pool += [views.select(x, 2, Size.of(number)) for number in columns]
    elif form == "shift" and len(dims) > 2:
        x = chain.drawn.tensor(dims)
        moved = views.padded(x, len(dims) - 2, 1, 0, 0.0)
        chain.pool += [x, views.part(moved, len(dims) - 2, Size.of(0), dims[-2])]
    elif form == "whole":
        dtype = rng.choice(("uint8", "int8", "int32", "bool"))
        chain.pool.append(v.to_float(chain.drawn.tensor(dims, dtype)))
    elif form == "gather" and len(dims) == 2 and last == 1:
        index = chain.drawn.tensor((dims[0],), "int64")
        table = chain.drawn.tensor((chain.drawn.symbol("t", 32000), dims[1]))
        chain.pool.append(views.take(table, 0, replace(index, dims=(*index.dims, ()))))
    elif form == "flip":
        chain.pool.append(views.flip(chain.drawn.tensor(dims), last))
    elif form in _NEWER:
        chain.pool += _newer(chain, form, dims, last)
    else:
        chain.pool.append(chain.drawn.tensor(dims))
    for _ in range(rng.choices((0, 1, 2), (55, 35, 10))[0]):
        chain.pool.append(chain.drawn.tensor(chosen.main))
    chain.unused += chain.pool


def _newer(chain: Chain, form: str, dims: list[Size], last: int) -> list[Value]:
    """Forms that joined the vocabulary after the second edition."""
    rng, drawn = chain.rng, chain.drawn
    match form:
        case "rolled":
            return [rolled(drawn.tensor(dims), last, rng.choice((-2, -1, 1, 3)))]
        case "thirds":
            count = rng.choice((3, 3, 4, 6))
            x = drawn.tensor([*dims[:last], dims[last] * Size.of(count), *dims[last + 1 :]])
            starts = rng.sample(range(count), rng.randint(2, min(3, count)))
            return [views.part(x, last, Size.of(one) * dims[last], dims[last]) for one in starts]
        case "window":
            step = rng.choice((1, 2, 4))
            x = drawn.tensor([*dims[:last], dims[last] * Size.of(step), *dims[last + 1 :]])
            each = Size.of(rng.choice((2, 3)))
            cut = windows(x, last, dims[last], each, step=Size.of(step), before=1)
            return [v.reduce(rng.choice(("sum", "max")), cut, [len(dims)])]
        case "packed_bits":
            x = v.to_float(drawn.tensor(dims, "uint8"))
            high = unary("floor", binary("div", x, 16.0))
            return [high, binary("sub", x, binary("mul", high, 16.0))]
        case "one_hot":
            labels = drawn.tensor(
                [Size.of(1) if at == last else one for at, one in enumerate(dims)], "int64"
            )
            x = drawn.tensor(dims)
            return [x, v.to_float(binary("eq", v.positions(x, last), labels))]
    x, length = drawn.tensor(dims), Size.of(rng.choice((1, 2)))
    part = drawn.tensor([*dims[:last], length, *dims[last + 1 :]])
    return [put(x, part, last, Size.of(0), length)]


def _turned(chain: Chain, dims: list[Size]) -> list[Value]:
    """A transposed tensor; a square one also without the transposition."""
    x = chain.drawn.tensor((*dims[:-2], dims[-1], dims[-2]))
    order = (*range(len(dims) - 2), len(dims) - 1, len(dims) - 2)
    return [views.permute(x, order), *([x] if dims[-1] == dims[-2] else [])]


def _rotate(chain: Chain, first: Value, second: Value) -> None:
    """A rotation by two tables, of whole or half width, broadcast in one of the usual ways."""
    rng, main = chain.rng, chain.layout.main
    dims: list[Size] = [main[-1]]
    for size in reversed(main[:-1]):
        dims.insert(0, size if rng.random() < 0.6 else Size.of(1))
    while dims and dims[0].value == 1 and rng.random() < 0.7 and len(dims) > 1:
        dims.pop(0)
    if rng.random() < 0.6:
        cosines, sines = chain.parts(dims), chain.parts(dims)
    else:
        cosines, sines = ([chain.drawn.tensor(dims)] * 2 for _ in range(2))
    low = binary("sub", binary("mul", first, cosines[0]), binary("mul", second, sines[0]))
    high = binary("add", binary("mul", second, cosines[1]), binary("mul", first, sines[1]))
    chain.pool += [low, high]
    if rng.random() < 0.6:
        chain.together = (low, high)
