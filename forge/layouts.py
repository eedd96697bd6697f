"""The layout of a random function: its tensors, its reduced and its broadcast dimensions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import sympy

from kmint_tui.graph import values as v
from kmint_tui.graph.sizes import ONE, Size, SizeNames
from kmint_tui.graph.values import Value

ROWS = (1, 8, 64, 256, 1024, 4096, 8192, 16384, 32768)
COLUMNS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 131072)
MOST_ELEMENTS = 2**27
FLOATS = ("float32", "bfloat16", "float16")
_KINDS = {
    "matrix": 30,
    "batch": 20,
    "heads": 16,
    "channels": 6,
    "spatial": 6,
    "groups": 6,
    "middle": 6,
    "batchnorm": 4,
    "plane": 6,
    "square": 4,
}
"""Layouts by their weights."""


@dataclass
class Drawn:
    """A function under construction: its sizes by symbol, and its tensors by name."""

    rng: random.Random
    sizes: dict[str, Size] = field(default_factory=dict)
    tensors: dict[str, tuple[tuple[Size, ...], str]] = field(default_factory=dict)
    names: SizeNames = field(default_factory=SizeNames)

    def symbol(self, name: str, example: int) -> Size:
        """A size that varies."""
        symbol = sympy.Symbol(name, positive=True, integer=True)
        return self.sizes.setdefault(name, Size.of_symbol(symbol, example, len(self.sizes)))

    def tensor(self, dims: Sequence[Size], dtype: str | None = None) -> Value:
        """A new input."""
        name = f"x{len(self.tensors)}"
        kind = dtype or self.rng.choice(FLOATS)
        self.tensors[name] = (tuple(dims), kind)
        for place, size in enumerate(dims):
            spelling = f"{name}.shape[{place}]"
            self.names.bind(size, spelling)
            if size.example % 2 == 0 and size.expression.is_Mul:
                self.names.bind(size.divided_by(Size.of(2)), f"{spelling} // 2")
        return v.tensor(name, dims, kind)


@dataclass(frozen=True)
class Layout:
    """The sizes of the main tensor, its reduced dimensions, and makers of other tensors.

    The others are broadcast against the main one.
    """

    main: tuple[Size, ...]
    places: tuple[int, ...]
    others: tuple[Callable[[Drawn], Value], ...]


def layout(drawn: Drawn) -> Layout:
    """One of the usual layouts of tensors."""
    rng = drawn.rng
    rows, columns = rng.choice(ROWS), rng.choice(COLUMNS)
    while rows * columns > MOST_ELEMENTS:
        rows, columns = rng.choice(ROWS), rng.choice(COLUMNS)
    kind = rng.choices(tuple(_KINDS), tuple(_KINDS.values()))[0]
    match kind:
        case "matrix":
            return _matrix(drawn, rows, columns)
        case "batch":
            return _batch(drawn, rows, columns)
        case "plane":
            return _plane(drawn, rows, columns)
        case "heads":
            return _heads(drawn, rows, columns)
        case "square":
            return _square(drawn)
    return _image(drawn, kind)


def _matrix(drawn: Drawn, rows: int, columns: int) -> Layout:
    m, n = drawn.symbol("m", rows), drawn.symbol("n", columns)
    return Layout((m, n), (1,), (_of(n), _of(n), _of(m, places=(0,), width=2), _of(m, ONE)))


def _batch(drawn: Drawn, rows: int, columns: int) -> Layout:
    first, second = _split(rows, drawn.rng)
    b, s = drawn.symbol("b", first), drawn.symbol("s", second)
    n = drawn.symbol("n", columns)
    others = (_of(n), _of(s, n), _of(b, ONE, n), _of(b, s, places=(0, 1), width=3), _of(s, ONE))
    return Layout((b, s, n), (2,), others)


def _plane(drawn: Drawn, rows: int, columns: int) -> Layout:
    """Rows of two dimensions."""
    first, second = _split(rows, drawn.rng)
    b, s = drawn.symbol("b", first), drawn.symbol("s", second)
    n = drawn.symbol("n", columns)
    o = drawn.symbol("o", _split(columns, drawn.rng)[1])
    others = (_of(n, o), _of(o), _of(s, n, o), _of(n, places=(0,), width=2))
    return Layout((b, s, n, o), (2, 3), others)


def _heads(drawn: Drawn, rows: int, columns: int) -> Layout:
    """Heads after the sequence, or before it."""
    rng = drawn.rng
    first, second = _split(rows, rng)
    heads = rng.choice((4, 8, 16, 32))
    b, s = drawn.symbol("b", first), drawn.symbol("s", second)
    n = drawn.symbol("n", min(columns, 512))
    h = Size.of(heads) if rng.random() < 0.5 else drawn.symbol("h", heads)
    if rng.random() < 0.5:
        table = _of(s, ONE, n)
        of_heads = _of(b, s, h, places=(0, 1, 2), width=4)
        return Layout((b, s, h, n), (3,), (_of(n), table, table, _of(h, n), of_heads))
    table = _of(s, n)
    others = (_of(n), table, table, _of(b, ONE, s, n), _of(h, ONE, ONE), _of(h, s, n))
    return Layout((b, h, s, n), (3,), (*others, _of(b, ONE, ONE, n)))


def _square(drawn: Drawn) -> Layout:
    """Scores of a sequence against itself."""
    b = drawn.symbol("b", drawn.rng.choice((1, 16, 64)))
    t = drawn.symbol("n", drawn.rng.choice((128, 512, 1024)))
    return Layout((b, t, t), (2,), (_of(t, t), _of(t), _of(b, ONE, ONE), _of(t, ONE)))


def _image(drawn: Drawn, kind: str) -> Layout:
    """Channels before two dimensions of places; or a reduced dimension in the middle."""
    rng = drawn.rng
    height, width = rng.choice(((8, 8), (16, 16), (32, 32), (64, 64), (28, 28)))
    b = drawn.symbol("b", rng.choice((1, 4, 16, 32)))
    c = drawn.symbol("c", rng.choice((32, 64, 128, 256, 512)))
    h, w = drawn.symbol("h", height), drawn.symbol("w", width)
    channel = _of(c, ONE, ONE)
    match kind:
        case "channels":
            return Layout((b, c, h, w), (1,), (channel, channel, _of(h, w)))
        case "spatial":
            return Layout((b, c, h, w), (2, 3), (channel, channel, _of(h, w)))
        case "groups":
            count = Size.of(rng.choice((4, 8, 16, 32)))
            weight = _of(count, c, ONE, ONE)
            return Layout((b, count, c, h, w), (2, 3, 4), (weight, weight))
        case "batchnorm":
            return Layout((b, c, h, w), (0, 2, 3), (channel, channel))
    n = drawn.symbol("n", rng.choice((64, 128, 512, 1024)))
    k = drawn.symbol("k", rng.choice((16, 64, 256)))
    return Layout((b, n, k), (1,), (_of(n, ONE), _of(k)))


def _split(total: int, rng: random.Random) -> tuple[int, int]:
    """Two factors of a power of two."""
    exponent = total.bit_length() - 1
    first = rng.randint(0, exponent)
    return 2**first, 2 ** (exponent - first)


def _of(
    *dims: Size, places: Sequence[int] | None = None, width: int = 0
) -> Callable[[Drawn], Value]:
    """A maker of a tensor of these sizes.

    With `places` its dimensions are those of the main tensor, which has `width` dimensions.
    """

    def make(drawn: Drawn) -> Value:
        value = drawn.tensor(dims)
        if places is None:
            return value
        spread = tuple(
            value.dims[places.index(place)] if place in places else () for place in range(width)
        )
        return replace(value, dims=spread)

    return make
