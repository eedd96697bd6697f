"""The inputs of a reference as plain data: symbolic shapes, dtypes, layouts and kinds of values.
Torch-free.

A set of inputs has one entry for each argument that it names. A size is a number or contains one
symbol, as in `2*N` or `D/2`. A set becomes tensors once every symbol has a number.
`InputSet.text()` writes a set as `--input` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from referee.reference.unusable import UnusableReference

Number = int | float
Sizes = Mapping[str, int]
"""A number for each symbol."""

SHORT_DTYPES = {
    "bfloat16": "bf16", "float16": "f16", "float32": "f32", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "bool": "bool", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
}  # fmt: skip
"""The dtypes that the referee judges, with their names in `--input`."""


@dataclass(frozen=True)
class Dim:
    """One size: `times * symbol / over + plus`, or the number `plus` without a symbol."""

    symbol: str = ""
    times: int = 1
    over: int = 1
    plus: int = 0

    def at(self, sizes: Sizes) -> int:
        """The size in elements. Raises UnusableReference if it is not whole, or negative."""
        if not self.symbol:
            return self.plus
        product = self.times * sizes[self.symbol]
        size = product // self.over + self.plus
        if product % self.over or size < 0:
            raise UnusableReference(
                f"{self} is no size where {self.symbol} is {sizes[self.symbol]}"
            )
        return size

    def __str__(self) -> str:
        if not self.symbol:
            return str(self.plus)
        text = f"{self.times}*{self.symbol}" if self.times != 1 else self.symbol
        text += f"/{self.over}" if self.over != 1 else ""
        return f"{text}{self.plus:+d}" if self.plus else text


@dataclass(frozen=True)
class Values:
    """The values of a tensor: numbers from `low` to `high`, those in `among`, or a named kind.

    `kind` is "" (open), "normal", "uniform", "distinct", "range" or "among". For integers `high`
    itself is excluded.
    """

    kind: str = ""
    low: Dim | float | None = None
    high: Dim | float | None = None
    among: tuple[Number, ...] = ()

    def __str__(self) -> str:
        if self.kind not in ("range", "among"):
            return self.kind
        bounds = [f"{_bound(self.low)}..{_bound(self.high)}"] if self.kind == "range" else []
        return "|".join([*bounds, *map(_bound, self.among)])


def _bound(value: Dim | float | None) -> str:
    return str(value) if isinstance(value, (Dim, int)) else repr(value)


@dataclass(frozen=True, kw_only=True)
class TensorInput:
    """A tensor argument. `strides` and `offset` count elements; `strides` None means contiguous."""

    dtype: str
    dims: tuple[Dim, ...]
    values: Values = Values()
    strides: tuple[int, ...] | None = None
    offset: int = 0

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        """The shape in elements. Raises UnusableReference for sizes that do not fit."""
        return tuple(dim.at(sizes) for dim in self.dims)

    @property
    def symbols(self) -> Iterator[str]:
        """The symbols of its shape and of its values."""
        bounds = [bound for bound in (self.values.low, self.values.high) if isinstance(bound, Dim)]
        return (dim.symbol for dim in (*self.dims, *bounds) if dim.symbol)

    def __str__(self) -> str:
        text = f"{SHORT_DTYPES.get(self.dtype, self.dtype)}[{','.join(map(str, self.dims))}]"
        if self.strides is not None:
            text += (
                f"({','.join(map(str, self.strides))}){f'+{self.offset}' if self.offset else ''}"
            )
        return text + (f":{self.values}" if self.values.kind else "")


@dataclass(frozen=True)
class DtypeName:
    """A dtype of torch by its name."""

    name: str

    def __repr__(self) -> str:
        return f"torch.{self.name}"


@dataclass(frozen=True)
class ScalarInput:
    """An argument that is no tensor: its value, and for a number further values to judge."""

    values: tuple[object, ...]

    def __str__(self) -> str:
        return "|".join(map(repr, self.values))


Entry = TensorInput | ScalarInput


@dataclass(frozen=True)
class InputSet:
    """One set of inputs by argument name, in the order of the text."""

    entries: tuple[tuple[str, Entry], ...]

    @property
    def tensors(self) -> dict[str, TensorInput]:
        """The tensor arguments by name."""
        return {name: entry for name, entry in self.entries if isinstance(entry, TensorInput)}

    @property
    def scalars(self) -> dict[str, ScalarInput]:
        """The other arguments by name."""
        return {name: entry for name, entry in self.entries if isinstance(entry, ScalarInput)}

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols in order of occurrence."""
        return tuple(
            dict.fromkeys(symbol for tensor in self.tensors.values() for symbol in tensor.symbols)
        )

    def text(self) -> str:
        """The set as `--input` reads it."""
        return " ".join(f"{name}={entry}" for name, entry in self.entries)
