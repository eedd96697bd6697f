"""Decides whether a reference can be evaluated, and thus judged, at a cell's values.

Values at which even correct kernels fail say nothing about a kernel. Limits: only the usual forms
of softmax are tried. For other functions, `traits.py` decides by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from referee.ops.implementation_defined import is_implementation_defined
from referee.ops.spec import Cell
from referee.ops.task import inputs_of
from referee.ops.torch_compat import Mode, as_tuple, computable
from referee.ops.traits import traits_of
from referee.reference.reference import Function
from referee.reference.unusable import UnusableReference, one_line

CPU_ELEMENTS = 1 << 15
SEEDS = 4  # Number of draws that a reference is tried with.
CHECKED_ELEMENTS = 1 << 22
"""Maximum number of elements at which every cell is evaluated beforehand, also in float64."""
LEAST_ACCURACY = 2.0**-12
_FINITE = ("mixed", "signed", "huge", "tiny", "zero", "equal", "sparse", "dense", "ties")


def label_of(cell: Cell) -> str:
    """The last part of a cell's name, which names its kind of values."""
    return cell.name.rpartition("-")[2]


def is_taken(
    eager: Function, cell: Cell, own: Sequence[Tensor | None], seeds: Iterable[int]
) -> bool:
    """Whether the reference returns the usual shapes for the draws of these seeds."""
    try:
        return all(
            _has_shapes(as_tuple(eager(*inputs_of(cell, own, seed))), cell) for seed in seeds
        )
    except Exception:
        return False


def _has_shapes(outputs: Sequence[Tensor], cell: Cell) -> bool:
    return [tuple(out.shape) for out in outputs] == [spec.shape for spec in cell.outputs]


def can_be_judged(
    eager: Function,
    oracle: Function,
    cell: Cell,
    own: Sequence[Tensor | None],
    *,
    rows: bool = False,
) -> bool:
    """Whether the reference runs, and stays finite where the label demands it.

    `rows` means that its masks have whole rows of one value.
    """
    label = label_of(cell)
    finite = rows or label in _FINITE or label.startswith("scalars")
    if label == "tiny" and cell.elements > CHECKED_ELEMENTS:
        return False
    if cell.elements > CHECKED_ELEMENTS and not finite:
        return True
    # A single draw may succeed by luck; for integers, larger cells are tried several times.
    most = CHECKED_ELEMENTS if any("int" in spec.dtype for spec in cell.inputs) else CPU_ELEMENTS
    if cell.elements <= most and not is_taken(eager, cell, own, range(1, SEEDS)):
        return False
    inputs = inputs_of(cell, own, 0)
    try:
        outputs = as_tuple(eager(*inputs))
        exact = as_tuple(oracle(*inputs)) if cell.elements <= CHECKED_ELEMENTS else outputs
    except Exception:
        return False
    if not _has_shapes(outputs, cell):
        return False
    # The timed cell is judged in any case.
    seeds = range(SEEDS if cell.elements <= CPU_ELEMENTS else cell.elements <= CHECKED_ELEMENTS)
    if label != "given" and any(
        is_implementation_defined(eager, inputs_of(cell, own, seed)) for seed in seeds
    ):
        return False
    if label == "tiny" and not (
        _is_accurate(eager, inputs, exact) and _chooses_alike(eager, oracle, cell, own)
    ):
        return False
    if rows and not _is_right_by_logits(eager, inputs, exact):
        return False
    if finite:
        return all(bool(computable(output).isfinite().all()) for output in outputs)
    return all(
        bool((computable(out).isfinite() | ~want.isfinite()).all())
        for out, want in zip(outputs, exact, strict=True)
    )


def evaluated(eager: Function, oracle: Function, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The reference's answers to an example.

    Raises UnusableReference if it fails, or returns other shapes in float64.
    """
    try:
        outputs = as_tuple(eager(*inputs))
    except UnusableReference:
        raise
    except Exception as error:
        raise UnusableReference(
            f"the reference fails on its own example: {one_line(error)}"
        ) from error
    if sum(tensor.numel() for tensor in inputs) <= CHECKED_ELEMENTS:
        try:
            exact = as_tuple(oracle(*inputs))
        except Exception as error:
            raise UnusableReference(
                f"the reference cannot be evaluated in float64, by which it is judged: {one_line(error)}"
            ) from error
        if [tuple(out.shape) for out in exact] != [tuple(out.shape) for out in outputs]:
            raise UnusableReference(
                "the reference returns other shapes in float64, by which it is judged"
            )
    return outputs


def _is_accurate(eager: Function, inputs: Sequence[Tensor], exact: Sequence[Tensor]) -> bool:
    """Whether fp32 arithmetic is accurate at tiny inputs, so that the budget is meaningful.

    A reference that subtracts numbers near one is not accurate there. Nor is a kernel of a function
    whose usual forms do so.
    """
    # A function without inputs, because only its calls matter here, not the columns that it mixes.
    cancelling = traits_of(lambda: eager(*inputs), tuple, ()).cancelling
    return not cancelling and _are_close(eager(*_single(inputs)), exact)


def _chooses_alike(
    eager: Function, oracle: Function, cell: Cell, own: Sequence[Tensor | None]
) -> bool:
    """Whether numbers of elements, as of `topk`, are the same in fp32 and in float64.

    Numbers have four bytes or more; integers of fewer bytes are quantised values.
    """
    if not any(spec.dtype in ("int32", "int64") for spec in cell.outputs):
        return True
    for seed in range(SEEDS):
        inputs = inputs_of(cell, own, seed)
        both = zip(as_tuple(eager(*_single(inputs))), as_tuple(oracle(*inputs)), strict=True)
        if any(not one.is_floating_point() and not torch.equal(one, other) for one, other in both):
            return False
    return True


def _is_right_by_logits(eager: Function, inputs: Sequence[Tensor], exact: Sequence[Tensor]) -> bool:
    """Whether exp(z - log(sum(exp(z)))) computes the reference's softmax correctly in fp32.

    If a mask fills a whole row with a large number, the logarithm is lost and every probability is
    one.
    """
    with _ByLogits():  # type: ignore[no-untyped-call]
        found = eager(*_single(inputs))
    return _are_close(found, exact)


class _ByLogits(Mode):  # type: ignore[no-untyped-call]
    def operation(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        name = str(func)
        if name not in ("aten._softmax.default", "aten._log_softmax.default"):
            return func(*args, **kwargs)
        logits, dimension = args[:2]
        logarithm = logits - torch.logsumexp(logits, dimension, keepdim=True)
        return logarithm if "log" in name else torch.exp(logarithm)


def _single(inputs: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.float() if tensor.is_floating_point() else tensor for tensor in inputs]


def _are_close(found: Tensor | tuple[Tensor, ...], exact: Sequence[Tensor]) -> bool:
    """Whether floating answers differ little from the exact ones, relative to the largest.

    Values that are not finite are ignored.
    """
    for out, want in zip(as_tuple(found), exact, strict=True):
        if want.is_floating_point() and want.numel():
            difference = (out.double() - want).abs().nan_to_num(posinf=0.0)
            if not bool(
                difference.max() <= LEAST_ACCURACY * want.abs().nan_to_num(posinf=0.0).max()
            ):
                return False
    return True
