"""A random function during its draw: the values so far, and the choice of the next ones."""

from __future__ import annotations

from collections.abc import Sequence

from forge.layouts import Drawn, layout
from kmint_tui.graph import values as v
from kmint_tui.graph import views
from kmint_tui.graph.sizes import Size
from kmint_tui.graph.values import Value


class Chain:
    """The state of a draw.

    `pool` holds the values for the next operations; the latest are the most likely. `unused` are
    those without a use. `numbers` are the function's number arguments. `packed` means that the main
    tensor holds two halves or pairs; `together` are two values that make one result.
    """

    def __init__(self, drawn: Drawn) -> None:
        self.drawn, self.rng = drawn, drawn.rng
        self.numbers: list[str] = []
        self.layout = layout(drawn)
        self.packed = ""
        self.together: tuple[Value, Value] | None = None
        self.pool: list[Value] = []
        self.unused: list[Value] = []

    def draw(self) -> Value:
        """A value: an unused one, a late one, or any."""
        rng = self.rng
        if self.unused and rng.random() < 0.45:
            return rng.choice(self.unused[-4:])
        return rng.choice(self.pool[-4:] if rng.random() < 0.5 else self.pool)

    def keep(self, value: Value, *used: Value) -> None:
        """Put a new value into the pool and mark the values that it uses."""
        self.unused = [one for one in self.unused if all(one is not other for other in used)]
        self.pool.append(value)
        self.unused.append(value)

    def constant(self) -> float:
        """A number literal of the function."""
        rng = self.rng
        return rng.choice(
            (
                0.5,
                2.0,
                1.0,
                1e-5,
                1e-6,
                0.1,
                -1.0,
                round(rng.uniform(-4, 4), rng.randint(1, 4)),
                rng.uniform(0, 1),
            )
        )

    def size(self) -> Value:
        """One of the function's sizes, as a number."""
        return v.scalar(self.rng.choice(list(self.drawn.sizes.values())), "i")

    def number(self) -> Value:
        """A constant, or now and then a number from the host."""
        roll = self.rng.random()
        if roll < 0.14:
            self.numbers.append(f"p{len(self.numbers)}")
            return v.scalar(self.numbers[-1])
        if roll < 0.18:
            return self.size()
        return v.constant(float(self.constant()))

    def other(self) -> Value:
        """A tensor that is broadcast against the main one."""
        roll = self.rng.random()
        if roll < 0.05:
            return self.drawn.tensor((Size.of(1),) if self.rng.random() < 0.5 else ())
        if self.packed and roll < 0.2:
            return self.rng.choice(self.parts(self.layout.main[-1:]))
        return self.rng.choice(self.layout.others)(self.drawn)

    def parts(self, main: Sequence[Size]) -> list[Value]:
        """The two parts of a new tensor whose last dimension is twice as long."""
        dims = [*main[:-1], main[-1] * Size.of(2)]
        x, place = self.drawn.tensor(dims), len(dims) - 1
        if self.packed == "pairs":
            return [views.every(x, place, number, 2) for number in range(2)]
        half = main[-1]
        return [views.part(x, place, Size.of(number) * half, half) for number in range(2)]


def runs_over(value: Value, places: Sequence[int]) -> bool:
    """True when the value has its own elements along these dimensions."""
    return len(value.dims) > max(places) and all(value.dims[place] for place in places)


def is_input(value: Value) -> bool:
    """True for an unchanged input tensor, or a number."""
    return not value.expression.children
