"""The shape of a test case in a trace: shapes and scalars, but no values of tensors and no name.
Runs in the trace worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from referee.ops.spec import Scalar, TensorSpec, arguments, spec_from_json


@dataclass(frozen=True)
class CellShape:
    """The arguments of `run` in a cell, and the number of tensors that it returns.

    `changes` are positions of inputs that the reference changes and gives back. With `silent` it
    returns nothing, and these inputs are all of its outputs.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: int
    scalars: tuple[Scalar, ...] = ()
    changes: tuple[int, ...] = ()
    silent: bool = False

    @property
    def names(self) -> list[str]:
        """The names of all arguments, in order."""
        return [one.name for one in arguments(self.inputs, self.scalars)]

    def called(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """The values of all arguments, in order."""
        given = iter(tensors)
        return [
            one.value if isinstance(one, Scalar) else next(given)
            for one in arguments(self.inputs, self.scalars)
        ]


def shape_of(data: dict[str, Any]) -> CellShape:
    """A cell's shape from the request's JSON."""
    return CellShape(
        tuple(map(spec_from_json, data["inputs"])),
        data["outputs"],
        tuple(Scalar(**one) for one in data["scalars"]),
        tuple(data.get("changes", ())),
        data.get("silent", False),
    )
