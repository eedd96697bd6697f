"""Cells of a user's reference, derived from its example inputs.

Shapes and dtypes are those of the examples. Values are redrawn with the same kind of distribution: integers between the
example's smallest and largest value; floats uniform from 0 when the example is nowhere negative, else normal, with the
example's own magnitude. Each example is judged as given, at 1/64 and at 8 times its magnitude, and with the structures that find
out kernels (constant, shifted, cancelling, one-hot rows) where the reference stays finite on them; the largest example is the bench
cell of the gpu profile, and the cpu profile keeps the smallest one and two more small ones, because Triton's interpreter is slow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from referee.ops.cells import Profile, contiguous_strides
from referee.ops.spec import Cell, Dtype, Role, TensorSpec
from referee.ops.values import draw

_FACTORS = ((1.0, "given"), (1.0 / 64.0, "small"), (8.0, "large"))
CPU_EXAMPLES, CPU_ELEMENTS = 3, 1 << 15


class Unusable(ValueError):
    """The examples cannot be turned into cells; the message says why."""


@dataclass(frozen=True)
class _Kind:
    recipe: str
    scale: float


def _dtype(tensor: Tensor, what: str) -> Dtype:
    name = str(tensor.dtype).removeprefix("torch.")
    for known in get_args(Dtype):
        if known == name:
            dtype: Dtype = known
            return dtype
    raise Unusable(f"{what} has dtype {name}, which the referee does not judge")


def _spec(name: str, tensor: Tensor) -> TensorSpec:
    shape = tuple(tensor.shape)
    return TensorSpec(name, shape, _dtype(tensor, name), contiguous_strides(shape))


def _kind(tensor: Tensor) -> _Kind:
    if tensor.numel() == 0:
        return _Kind("normal" if tensor.is_floating_point() else "range:0:1", 1.0)
    if not tensor.is_floating_point():
        values = tensor.to(torch.int64)
        return _Kind(f"range:{int(values.min())}:{int(values.max())}", 1.0)
    values = tensor.detach().double()
    values = values[values.isfinite()]
    if values.numel() == 0:
        return _Kind("normal", 1.0)
    if bool((values >= 0).all()):
        return _Kind("uniform", float(values.max()) or 1.0)
    return _Kind("normal", float(values.square().mean().sqrt()))


def _outputs(eager: Callable[..., Any], inputs: tuple[Tensor, ...]) -> tuple[TensorSpec, ...]:
    try:
        result = eager(*inputs)
    except Exception as error:
        raise Unusable(f"the reference fails on its own example: {type(error).__name__}: {error}") from error
    outputs = result if isinstance(result, tuple) else (result,)
    names = ("out",) if len(outputs) == 1 else tuple(f"out{i}" for i in range(len(outputs)))
    return tuple(_spec(name, out) for name, out in zip(names, outputs, strict=True))


def user_cells(
    names: tuple[str, ...], examples: tuple[tuple[Tensor, ...], ...], eager: Callable[..., Any], profile: Profile
) -> tuple[Cell, ...]:
    """The cells of the examples. Runs the reference once an example, for the output shapes. Raises Unusable."""
    ordered = sorted(enumerate(examples), key=lambda item: sum(tensor.numel() for tensor in item[1]))
    if profile == "cpu":
        small = [item for item in ordered[1:] if max(tensor.numel() for tensor in item[1]) <= CPU_ELEMENTS]
        chosen = [ordered[0], *small[: CPU_EXAMPLES - 1]]
    else:
        chosen = ordered
    largest = ordered[-1][0]
    made = []
    for index, example in chosen:
        inputs = tuple(_spec(name, tensor) for name, tensor in zip(names, example, strict=True))
        outputs = _outputs(eager, example)
        kinds = [_kind(tensor) for tensor in example]
        recipe = "".join(f"{kind.recipe}|" for kind in kinds)
        for factor, label in _FACTORS:
            role: Role = "bench" if profile == "gpu" and index == largest and factor == 1.0 else "required"
            scales = tuple(kind.scale * factor for kind in kinds)
            made.append(Cell(f"example{index}-{label}", inputs, outputs, recipe, scales, role))
        structured = "".join(f"{'mixed' if kind.recipe == 'normal' else kind.recipe}|" for kind in kinds)
        cell = Cell(f"example{index}-mixed", inputs, outputs, structured, tuple(kind.scale for kind in kinds), "required")
        if structured != recipe and _stays_finite(eager, cell):
            made.append(cell)
    return tuple(made)


def _stays_finite(eager: Callable[..., Any], cell: Cell) -> bool:
    try:
        result = eager(*draw(cell, 0))
    except Exception:
        return False
    outputs = result if isinstance(result, tuple) else (result,)
    return all(bool(output.isfinite().all()) for output in outputs)
