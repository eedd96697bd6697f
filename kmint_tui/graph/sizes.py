"""Sizes of dimensions: an expression in the sizes of the inputs, and a value for decisions.

In the value, every symbol has a large prime factor that no other symbol has. So two values are
equal, or one divides the other, only if that is true for every input of the form. The example is
the value at the given inputs.

The host spells a size as a dimension of an argument, or as a number made from these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import sympy

from kmint_tui.graph.program import OutOfScope

_LARGE = 10_000
"""Primes of symbols are above it, and so above any constant that a size is compared with."""


class NotDivisible(ValueError):
    """One size is no multiple of the other."""


@dataclass(frozen=True)
class Size:
    """An integer known as an expression. Two sizes are equal when their values are.

    `apart` marks one that equals another only by chance, so that it has a separate name in a text.
    """

    expression: sympy.Expr
    value: int
    example: int
    apart: bool = False

    @classmethod
    def of(cls, number: int) -> Size:
        """A constant."""
        return cls(sympy.Integer(number), number, number)

    @classmethod
    def of_symbol(cls, symbol: sympy.Symbol, example: int, number: int) -> Size:
        """A size that varies. `number` counts the symbols, so that each has another prime."""
        return cls(symbol, symbol_value(example, number), example)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __mul__(self, other: Size) -> Size:
        return Size(
            self.expression * other.expression,
            self.value * other.value,
            self.example * other.example,
            self.apart or other.apart,
        )

    def __add__(self, other: Size) -> Size:
        return Size(
            self.expression + other.expression,
            self.value + other.value,
            self.example + other.example,
        )

    def __neg__(self) -> Size:
        return Size(-self.expression, -self.value, -self.example)

    def __sub__(self, other: Size) -> Size:
        return self + -other

    def divided_by(self, other: Size) -> Size:
        """The exact quotient. Raises NotDivisible."""
        if other.value == 0 or self.value % other.value:
            raise NotDivisible(f"{self.expression} is no multiple of {other.expression}")
        if self.value // other.value == self.example // other.example:
            # The same at sizes of any symbol: a constant, however it is written.
            return Size.of(self.value // other.value)
        quotient = sympy.cancel(self.expression / other.expression)
        if not (quotient.is_polynomial() and _is_integral(quotient)):
            from torch.utils._sympy.functions import FloorDiv

            quotient = FloorDiv(self.expression, other.expression)
        return Size(quotient, self.value // other.value, self.example // other.example)

    def over(self, number: int) -> Size:
        """The quotient by a constant, rounded down."""
        if self.value % number == 0:
            return self.divided_by(Size.of(number))
        from torch.utils._sympy.functions import FloorDiv

        return Size(
            FloorDiv(self.expression, sympy.Integer(number)),
            self.value // number,
            self.example // number,
        )

    @property
    def is_constant(self) -> bool:
        """True if the size is the same for every input."""
        return not self.expression.free_symbols


def symbol_value(example: int, number: int) -> int:
    """The value of a symbol by its example: a multiple of the symbol's own prime."""
    return example * _prime(number)


@lru_cache(maxsize=256)
def _prime(number: int) -> int:
    return int(sympy.nextprime(_LARGE, number + 1))


def _is_integral(expression: sympy.Expr) -> bool:
    return all(number.is_integer for number in expression.atoms(sympy.Number))


ONE, ZERO = Size.of(1), Size.of(0)


def product(sizes: Sequence[Size]) -> Size:
    """The product, one for no sizes."""
    total = ONE
    for size in sizes:
        total = total * size
    return total


class SizeNames:
    """The expressions of arguments for sizes and symbols. A later argument never changes an earlier
    one.
    """

    def __init__(self) -> None:
        self._symbols: dict[sympy.Symbol, str] = {}
        self._sizes: dict[int, str] = {}

    def bind(self, size: Size, spelling: str) -> None:
        """Note a dimension of an argument. The first that shows a size spells it."""
        if not size.is_constant:
            self._sizes.setdefault(size.value, spelling)
        if isinstance(size.expression, sympy.Symbol):
            self._symbols.setdefault(size.expression, spelling)

    def show(self, size: Size) -> str:
        """A size as Python. Raises OutOfScope."""
        return self._sizes.get(size.value) or self.show_number(size.expression)

    def show_number(self, expression: sympy.Expr) -> str:
        """A number made from sizes as Python. Raises OutOfScope for one that it cannot write."""
        match expression:
            case sympy.Symbol():
                if expression not in self._symbols:
                    raise OutOfScope(f"a size {expression} that no argument shows")
                spelling = self._symbols[expression]
                return f"({spelling})" if " " in spelling else spelling
            case sympy.Integer():
                return str(int(expression))
            case sympy.Float() | sympy.Rational():
                return repr(float(expression))
            case sympy.Add():
                terms = " + ".join(sorted(map(self._factor, expression.args)))
                return terms.replace("+ -1 * ", "- ")
            case sympy.Mul():
                return " * ".join(sorted(map(self._factor, expression.args)))
        parts = [self._factor(one) for one in expression.args]
        match type(expression).__name__:
            case "ToFloat" | "TruncToInt" if len(parts) == 1:
                return parts[0]
            case "FloorDiv" | "CleanDiv":
                return f"{parts[0]} // {parts[1]}"
            case "FloatTrueDiv" | "IntTrueDiv":
                return f"{parts[0]} / {parts[1]}"
            case "Mod" | "PythonMod":
                return f"{parts[0]} % {parts[1]}"
            case "FloatPow" | "PowByNatural" | "Pow":
                return f"{parts[0]} ** {parts[1]}"
            case "OpaqueUnaryFn_sqrt":
                return f"{parts[0]} ** 0.5"
        raise OutOfScope(f"a number made from sizes by {type(expression).__name__}")

    def _factor(self, expression: sympy.Expr) -> str:
        text = self.show_number(expression)
        simple = isinstance(expression, (sympy.Symbol, sympy.Integer, sympy.Mul)) or " " not in text
        return text if simple else f"({text})"
