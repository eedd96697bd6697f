"""A function as stages of rows, as plain data: for smiths, for kernels' writers and for host code.

A stage runs over `M` rows of `N` columns. Names are canonical, so that functions that compute the
same have the same stage:

    a0, a1, ...  tensors read        k0, ...  constants of the code
    b0, ...      tensors written     K0, ...  sizes
    s0, ...      numbers of the host v0, ...  values

An address counts elements from the start of a contiguous tensor. It is made of the row `r`, the
column `c`, sizes and integer values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from kmint_tui.graph.vocabulary import LOAD, REDUCTIONS, REVERSED, SCANS, Kind

Over = Literal["mn", "m", "n", "1"]
"""The loops of a value: rows and columns, rows, columns, or none."""
PLAIN = "r * N + c"


class OutOfScope(ValueError):
    """The function cannot be written as row-wise stages; the message gives the reason."""


@dataclass(frozen=True)
class Line:
    """One value: an operation on values, constants, numbers and sizes, by name.

    A `load` has a tensor and an address.
    """

    name: str
    op: str
    arguments: tuple[str, ...]
    over: Over
    kind: Kind


@dataclass(frozen=True)
class Store:
    """One value written to a tensor."""

    tensor: str
    address: str
    value: str
    over: Over


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The work of one kernel.

    `reads` and `writes` name the program's tensors for `a0`, ... and `b0`, .... `numbers` and
    `sizes` have the host's expressions for `s0`, ... and for `M`, `N`, `K0`, ...; `constants` has
    the values of `k0`, .... A stage without rows has no `M`: it is one row, or flat if nothing is
    reduced. `example` is (M, N) at the example's inputs; the structure is chosen for it.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    numbers: tuple[str, ...]
    sizes: tuple[tuple[str, str], ...]
    constants: tuple[float | int | bool, ...]
    lines: tuple[Line, ...]
    stores: tuple[Store, ...]
    example: tuple[int, int]

    @property
    def has_rows(self) -> bool:
        """True if the stage runs over more than one row."""
        return any(name == "M" for name, _ in self.sizes)

    @property
    def is_rowwise(self) -> bool:
        """True if the stage reduces or scans a row."""
        return any(is_rowwise(line.op) for line in self.lines)

    @property
    def size_names(self) -> tuple[str, ...]:
        """The names of its sizes."""
        return tuple(name for name, _ in self.sizes)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The parameters of its `launch`, in order."""
        reads = (f"a{number}" for number in range(len(self.reads)))
        writes = (f"b{number}" for number in range(len(self.writes)))
        numbers = (f"s{number}" for number in range(len(self.numbers)))
        return (*reads, *writes, *numbers, *self.size_names)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Every address, loads first."""
        return (
            *(line.arguments[1] for line in self.lines if line.op == LOAD),
            *(store.address for store in self.stores),
        )


@dataclass(frozen=True)
class Tensor:
    """A tensor that the host allocates. Shape and dtype are Python expressions of the arguments."""

    name: str
    shape: tuple[str, ...]
    dtype: str


@dataclass(frozen=True, kw_only=True)
class Program:
    """A whole function. `arguments` are its parameters, `tensors` the tensors among them.

    `results` names the returned tensors, which are the `outputs`. `temporaries` connect stages.
    `notes` explain decisions.
    """

    name: str
    arguments: tuple[str, ...]
    tensors: tuple[str, ...]
    temporaries: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    results: tuple[str, ...]
    stages: tuple[Stage, ...]
    notes: tuple[str, ...] = ()

    @property
    def main(self) -> int:
        """The stage that a smith writes: the one with the most lines.

        A stage that reduces a single row more than once comes last; smiths saw few of them.
        """

        def rank(number: int) -> tuple[bool, int, int]:
            stage = self.stages[number]
            reduced = sum(is_rowwise(line.op) for line in stage.lines)
            return stage.has_rows or reduced < 2, len(stage.lines), -number

        return max(range(len(self.stages)), key=rank)

    def to_json(self) -> dict[str, Any]:
        """The program as plain data."""
        return asdict(self)


def is_rowwise(op: str) -> bool:
    """True if an operation needs a whole row."""
    return op in REDUCTIONS or op.removesuffix(REVERSED) in SCANS


def from_json(data: dict[str, Any]) -> Program:
    """The program that `to_json` gave. Raises KeyError or TypeError for other data."""
    stages = tuple(
        Stage(
            reads=tuple(one["reads"]),
            writes=tuple(one["writes"]),
            numbers=tuple(one["numbers"]),
            sizes=tuple((name, text) for name, text in one["sizes"]),
            constants=tuple(one["constants"]),
            lines=tuple(
                Line(**{**line, "arguments": tuple(line["arguments"])}) for line in one["lines"]
            ),
            stores=tuple(Store(**store) for store in one["stores"]),
            example=(one["example"][0], one["example"][1]),
        )
        for one in data["stages"]
    )
    return Program(
        name=data["name"],
        arguments=tuple(data["arguments"]),
        tensors=tuple(data["tensors"]),
        temporaries=_tensors(data["temporaries"]),
        outputs=_tensors(data["outputs"]),
        results=tuple(data["results"]),
        stages=stages,
        notes=tuple(data["notes"]),
    )


def _tensors(data: Sequence[dict[str, Any]]) -> tuple[Tensor, ...]:
    return tuple(Tensor(one["name"], tuple(one["shape"]), one["dtype"]) for one in data)


def stage_text(stage: Stage) -> str:
    """The text of a stage.

    The first line has the arguments of `launch`, the second the example's rows and columns as
    powers of two. Then each value has one line: its name, its loops, its kind, the operation and
    the arguments. The last lines give the destination of each written value.
    """
    lines = [
        " ".join(stage.arguments),
        " ".join(("shape", *(str(max(size, 1).bit_length() - 1) for size in stage.example))),
    ]
    for line in stage.lines:
        head = f"{line.name} {line.over} {line.kind} {line.op}"
        if line.op == LOAD:
            tensor, address = line.arguments
            lines.append(f"{head} {tensor} at {address}")
        else:
            lines.append(" ".join((head, *line.arguments)))
    lines += [
        f"{store.tensor} {store.over} store {store.value} at {store.address}"
        for store in stage.stores
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class _Shaped:
    """The methods of a tensor that a host's expression of a size may call."""

    shape: tuple[int, ...]


def size_at(text: str, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """The value of a size, as the host spells it, for arguments of these shapes.

    Only `sizes.SizeNames` writes these texts.
    """
    shaped = {name: _Shaped(shape) for name, shape in shapes.items()}
    return int(eval(text, {"math": math}, shaped))


def at_shapes(program: Program, shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """The program with the example sizes that its stages have at these shapes of its arguments."""
    stages = []
    for stage in program.stages:
        sizes = {name: size_at(text, shapes) for name, text in stage.sizes}
        stages.append(replace(stage, example=(sizes.get("M", 1), sizes["N"])))
    return replace(program, stages=tuple(stages))
