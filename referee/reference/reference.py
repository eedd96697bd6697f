"""A loaded reference: the facts that prompts, graphs, the judge and saved files need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from referee.ops.cells import contiguous_strides
from referee.ops.spec import Cell, Dtype, TensorSpec, are_apart
from referee.ops.values import draw
from referee.reference.family import Family
from referee.reference.inputs import Number, Sizes, TensorInput
from referee.reference.kinds import Kind, kind_of_text

Function = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of `run`.

    `origin` "state" marks a parameter or buffer of the user's module. A scalar has its judged
    `values`, the `usual` one first. `default` is that of the user's function, if it has one.
    """

    name: str
    kind: Literal["tensor", "scalar"]
    origin: Literal["parameter", "state"] = "parameter"
    values: tuple[Number, ...] = ()
    default: Number | None = None

    @property
    def usual(self) -> Number:
        """The scalar's value in the example."""
        return self.values[0]


@dataclass(frozen=True)
class Fixed:
    """A value of the user's call that is not an argument of `run`, and the reason."""

    name: str
    value: Any
    why: str


@dataclass(frozen=True, kw_only=True)
class Example:
    """One set of inputs: its sizes, kinds of values, and the user's own tensors if the file makes
    them.

    Tensors and kinds follow the order of the tensor arguments, `scalars` that of the scalar
    arguments.
    """

    label: str
    family: Family
    kinds: tuple[Kind | None, ...]
    scalars: tuple[Number, ...] = ()
    own: tuple[Tensor, ...] | None = None

    @property
    def sizes(self) -> tuple[Sizes, ...]:
        """All small sizes, the least ones first."""
        return (self.family.base, *self.family.around)

    def kinds_at(self, sizes: Sizes) -> tuple[Kind, ...]:
        """The kinds of values at these sizes."""
        return tuple(
            kind or kind_of_text(tensor)
            for kind, tensor in zip(self.kinds, self.family.at(sizes), strict=True)
        )

    def specs(self, names: Sequence[str], sizes: Sizes) -> tuple[TensorSpec, ...]:
        """The specs of the tensors at these sizes."""
        return tuple(
            _spec(name, tensor) for name, tensor in zip(names, self.family.at(sizes), strict=True)
        )

    def tensors(self, sizes: Sizes | None = None, seed: int = 0) -> tuple[Tensor, ...]:
        """Tensors on the CPU at these sizes, by default the least ones.

        They are the user's own at their sizes, else drawn from the seed.
        """
        sizes = self.family.base if sizes is None else sizes
        if (
            self.own is not None
            and not self.family.declared
            and dict(sizes) == dict(self.family.numbers)
        ):
            return self.own
        kinds = self.kinds_at(sizes)
        specs = self.specs([f"input{number}" for number in range(len(kinds))], sizes)
        values = "".join(f"{kind.tied(kind.recipe)}|" for kind in kinds)
        return draw(
            Cell(self.label, specs, (), values, tuple(kind.scale for kind in kinds), "required"),
            seed,
        )


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A user's function, ready to be called, judged, traced and shown.

    `function` takes tensors and scalars in the order of `arguments`, and returns a tensor or a
    tuple, named by `outputs`. It may write into its arguments. Its caller holds `user_code()`.
    `timed` is the same function with as little code around the user's as possible, for
    torch.compile. It supports neither other module sizes nor the file's default dtype.

    `fixed` are values of the call that are not arguments. `mutates` are arguments that are changed
    but not returned, `changes` those that are changed and are outputs. `notes` name, for people, the
    parts that were unwrapped, moved or chosen. `source` is the text of the function and of the
    names that it uses in its file. `files` has names and sha256 of all files read, and `digest`
    that of all together.
    """

    title: str
    name: str
    function: Function
    timed: Function
    arguments: tuple[Argument, ...]
    fixed: tuple[Fixed, ...]
    outputs: tuple[str, ...]
    mutates: tuple[str, ...]
    changes: tuple[str, ...]
    examples: tuple[Example, ...]
    notes: tuple[str, ...]
    source: str
    summary: str
    path: Path
    files: tuple[tuple[str, str], ...]
    digest: str
    default_dtype: torch.dtype = torch.float32

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of the tensor arguments, in order."""
        return tuple(argument.name for argument in self.arguments if argument.kind == "tensor")

    @property
    def scalars(self) -> tuple[Argument, ...]:
        """The scalar arguments, in order."""
        return tuple(argument for argument in self.arguments if argument.kind == "scalar")

    def at(self, scalars: Sequence[Number] | None = None, *, timed: bool = False) -> Function:
        """The function, or the timed one, of the tensors alone.

        `scalars` are the values of its scalars, by default the usual ones.
        """
        function = self.timed if timed else self.function
        values = iter(
            scalars if scalars is not None else [argument.usual for argument in self.scalars]
        )
        given = [None if argument.kind == "tensor" else next(values) for argument in self.arguments]
        if not self.scalars:
            return function

        def with_scalars(*tensors: Any) -> Any:
            left = iter(tensors)
            return function(*[next(left) if value is None else value for value in given])

        return with_scalars


def _spec(name: str, tensor: TensorInput) -> TensorSpec:
    shape = tuple(dim.plus for dim in tensor.dims)
    dtype: Dtype = next(known for known in get_args(Dtype) if known == tensor.dtype)
    if tensor.strides is not None and not are_apart(shape, tensor.strides):
        return TensorSpec(name, shape, dtype, contiguous_strides(shape))
    return TensorSpec(
        name, shape, dtype, tensor.strides or contiguous_strides(shape), tensor.offset
    )
