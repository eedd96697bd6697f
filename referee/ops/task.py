"""A task: everything that the judge needs for one operation. Imports torch.

`eager` and `oracle` take the cell's inputs. Catalogue operations return one tensor; a user's
operation may return a tuple. Public tolerances are what the published harness of the smiths allowed
(research/ouroboros.md 1.6). They are hints and an outer bound for the comparator. The budget itself
comes from float64 and from eager PyTorch's own error on the same data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from torch import Tensor

from referee.ops.catalogue import base_name, get
from referee.ops.cells import Profile, cells
from referee.ops.reference import eager, oracle
from referee.ops.spec import Cell, Op, Scalar
from referee.ops.traits import Traits
from referee.ops.values import draw, place


@dataclass(frozen=True)
class Tolerance:
    """|error| may reach atol + rtol * |expected|."""

    rtol: float
    atol: float


PUBLIC = MappingProxyType(
    {
        "float32": Tolerance(2e-4, 2e-5),
        "float16": Tolerance(2e-2, 2e-3),
        "bfloat16": Tolerance(3e-2, 8e-3),
    }
)
_OVERRIDES = MappingProxyType({"cumsum": Tolerance(2e-4, 5e-3), "entropy": Tolerance(2e-4, 2e-2)})


def public_tolerances(op: Op) -> dict[str, Tolerance]:
    """Tolerances by dtype of the first floating input."""
    table = dict(PUBLIC)
    if base_name(op) in _OVERRIDES:
        table["float32"] = _OVERRIDES[base_name(op)]
    return table


Function = Callable[..., Any]


@dataclass(frozen=True)
class Task:
    """One operation with its trusted forms and cells.

    `tolerances` are hints by dtype (`public_tolerances`). `rowwise` promises that output row i depends
    only on row i of the inputs, so that huge cells are compared in pieces. `given` has inputs that
    are not drawn, by cell; None marks a drawn one. `traits` are those of a user's reference.
    `timed` is the source of baselines, without the protection of inputs in `eager`. Any thread may
    call `eager` and `oracle`; only one thread of a process may call `timed`.

    A user's reference may take numbers. `scalars` are their values in `eager`, `oracle` and
    `timed`, and `bind` makes these three for other values. `notes` and `reservations` are sentences
    for a passing verdict.
    """

    op: Op
    cells: tuple[Cell, ...]
    eager: Function
    oracle: Function
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    rowwise: bool = False
    given: Mapping[str, tuple[Tensor | None, ...]] = field(default_factory=dict)
    traits: Traits = Traits()
    timed: Function | None = None
    scalars: tuple[Scalar, ...] = ()
    bind: Callable[[tuple[Scalar, ...]], tuple[Function, Function, Function | None]] | None = None
    notes: tuple[str, ...] = ()
    reservations: tuple[str, ...] = ()

    def at(self, cell: Cell) -> Task:
        """The task with the numbers of this cell."""
        if self.bind is None or cell.scalars == self.scalars:
            return self
        eager, oracle, timed = self.bind(cell.scalars)
        return replace(self, eager=eager, oracle=oracle, timed=timed, scalars=cell.scalars)

    def without(self, names: Collection[str]) -> Task:
        """The task for a kernel whose `run` leaves out these numbers; they keep usual values."""
        usual = {scalar.name: scalar.value for scalar in self.scalars if scalar.name in names}
        same = {
            cell.name
            for cell in self.cells
            if set(names) >= {scalar.name for scalar in cell.scalars if scalar not in self.scalars}
        }
        # Cells that differ only in these numbers would repeat the first one.
        left = [
            cell for cell in self.cells if cell.scalars == self.scalars or cell.name not in same
        ]
        op = replace(
            self.op, arguments=tuple(name for name in self.op.arguments if name not in names)
        )
        only = ", ".join(f"{name}={value:g}" for name, value in usual.items())
        reservation = f"`run` leaves out numbers that the reference takes: judged at {only} only"
        return replace(
            self, op=op, cells=tuple(_without(cell, names) for cell in left), scalars=_kept(self.scalars, names),
            reservations=(*self.reservations, reservation),
        )  # fmt: skip

    def inputs(self, cell: Cell, seed: int, device: str = "cpu") -> tuple[Tensor, ...]:
        """The inputs of a cell on `device`: drawn from `seed`, or copies of the given ones."""
        own = self.given.get(cell.name)
        return draw(cell, seed, device) if own is None else inputs_of(cell, own, seed, device)

    @property
    def required(self) -> tuple[Cell, ...]:
        """The cells of the contract, the bench cell included."""
        return tuple(cell for cell in self.cells if cell.role != "capability")

    @property
    def bench(self) -> Cell | None:
        """The timed cell, or None."""
        return next((cell for cell in self.cells if cell.role == "bench"), None)


def _without(cell: Cell, names: Collection[str]) -> Cell:
    return replace(cell, scalars=_kept(cell.scalars, names))


def _kept(scalars: Sequence[Scalar], names: Collection[str]) -> tuple[Scalar, ...]:
    """The scalars without these names, with positions closed up."""
    gone = [scalar.position for scalar in scalars if scalar.name in names]
    left = (scalar for scalar in scalars if scalar.name not in names)
    return tuple(
        replace(one, position=one.position - sum(place < one.position for place in gone))
        for one in left
    )


def inputs_of(
    cell: Cell, own: Sequence[Tensor | None], seed: int, device: str = "cpu"
) -> tuple[Tensor, ...]:
    """The cell's inputs: fresh copies of the given ones, and the others drawn."""
    drawn = draw(cell, seed, device)
    return tuple(
        one if tensor is None else place(spec, tensor.to(device, copy=True))
        for spec, one, tensor in zip(cell.inputs, drawn, own, strict=True)
    )


def load(name: str, profile: Profile) -> Task:
    """The task of a catalogue or remix operation. Raises UnknownOp."""
    op = get(name)
    return Task(
        op, cells(op, profile=profile), eager(op), oracle(op), public_tolerances(op), rowwise=True
    )
