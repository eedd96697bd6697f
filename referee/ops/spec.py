"""Operations and test cells as plain data. Torch-free, so that the catalogue lists in milliseconds.

Dtypes are torch's names without the prefix ("float16"). Shapes and strides count elements.
Catalogue operations use the first five dtypes; the others occur in users' references, float64 as an
output only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

Dtype = Literal[
    "float32",
    "float16",
    "bfloat16",
    "int8",
    "int64",
    "int16",
    "int32",
    "uint8",
    "bool",
    "float8_e4m3fn",
    "float8_e5m2",
    "float64",
]
Role = Literal["required", "bench", "capability"]


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a cell. `offset` is the storage offset in elements."""

    name: str
    shape: tuple[int, ...]
    dtype: Dtype
    strides: tuple[int, ...]
    offset: int = 0


def spec_from_json(data: Mapping[str, Any]) -> TensorSpec:
    """A tensor from `asdict` through JSON."""
    return TensorSpec(**{**data, "shape": tuple(data["shape"]), "strides": tuple(data["strides"])})


@dataclass(frozen=True)
class Op:
    """One fused operation with a trusted reference.

    `kind` names the signature (`signatures.KINDS`), or is "function". `norm`, `residual` and `acts`
    are set for operations of the chain grammar. `regime` is the timing regime: a `_short` operation
    is its base on many short rows, a `_wide` one on few very long rows. `arguments` is set for
    functions only; `signatures.signature` gives the argument names of every operation.
    """

    name: str
    kind: str
    family: str
    title: str
    formula: str
    difficulty: Literal["familiar", "hard"]
    norm: Literal["rms", "layer"] | None = None
    residual: bool = False
    acts: tuple[str, ...] = ()
    eps: float | None = None
    origin: Literal["catalogue", "remix", "user"] = "catalogue"
    regime: Literal["standard", "short", "wide"] = "standard"
    arguments: tuple[str, ...] = ()

    @property
    def is_function(self) -> bool:
        """Whether a function in a file, a user's or a shipped one, is the reference.

        Such an operation may have any shapes, dtypes and number of results. Its cells come from
        example inputs.
        """
        return self.kind == "function"


@dataclass(frozen=True)
class Scalar:
    """A number among the arguments of `run`: name, position, and value in one cell."""

    name: str
    position: int
    value: int | float


@dataclass(frozen=True)
class Cell:
    """One test case: shapes, dtypes and the recipe of the values.

    `values` names a recipe of `values.py`; `scales` multiplies each input. A `required` cell is
    part of the contract, the `bench` cell is required and timed, and a `capability` cell is
    optional. `scalars` are numbers among the arguments of `run`, in order of position. `changes` are
    positions of the inputs that the reference changes in place and that are outputs.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    values: str
    scales: tuple[float, ...]
    role: Role
    scalars: tuple[Scalar, ...] = ()
    changes: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows of the first input; 1 for a vector or a scalar."""
        shape = self.inputs[0].shape
        return shape[0] if len(shape) > 1 else 1

    @property
    def columns(self) -> int:
        """Size of the first input's last dimension."""
        return self.inputs[0].shape[-1]

    @property
    def width(self) -> int:
        """The largest last dimension of the inputs; 0 if all are scalars."""
        return max((spec.shape[-1] for spec in self.inputs if spec.shape), default=0)

    @property
    def elements(self) -> int:
        """Number of elements of all inputs."""
        return sum(prod(spec.shape) for spec in self.inputs)

    @property
    def arguments(self) -> tuple[TensorSpec | Scalar, ...]:
        """The arguments of `run`, in order."""
        return arguments(self.inputs, self.scalars)


def arguments(
    inputs: Iterable[TensorSpec], scalars: Iterable[Scalar]
) -> tuple[TensorSpec | Scalar, ...]:
    """Inputs in order, with every scalar at its position."""
    found: list[TensorSpec | Scalar] = list(inputs)
    for scalar in scalars:
        found.insert(scalar.position, scalar)
    return tuple(found)


def are_apart(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether each dimension, by growing stride, steps over everything that the smaller ones reach.

    Then no two elements share memory.
    """
    reach = 0
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return False
            reach += (size - 1) * stride
    return True


def rows_are_told_apart(rows: int, shapes: Iterable[Sequence[int]]) -> bool:
    """Whether no other dimension equals `rows`, so that a first dimension of `rows` means rows."""
    return not any(rows in shape[1:] for shape in shapes)
