"""The error budget: the distance that each element of an answer may have from float64.

The budget is derived, not tuned for an operation. A kernel must be as exact as eager PyTorch: fp32
arithmetic inside and one rounding to the output's dtype.

    budget = 1.5 ulp(expected)           in the output's dtype.
           + 8 E                         E: the error of fp32 arithmetic, as the row's maximum.
           + 16 eps32 A                  A: the magnitude of the row's intermediates.
           + eps32 L |expected|          L: the row's largest logit, for probabilities.

    E = max(|fp32 eager - float64|, |float64 of moved inputs - float64|)

First term. It covers the final rounding (1/2 ulp) and at most one intermediate rounding to that
dtype (up to 1 ulp of the product).

Second term. Eager's fp32 error is one sample of fp32's error on these data. The float64 result for
inputs moved by 2^-24 bounds any backward-stable algorithm, and does not depend on eager's luck. The
source is Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 1.6. A random half
of the inputs moves down, and then the other half. Where a mean is subtracted, the other half moves
up instead, because the mean is rounded too.

Outputs in fp32 take two such pairs, four for thousands of rows, and sixteen for short rows. One
pair's samples are small in some row by chance. Other summation orders and exact rewritings stay
within a small multiple.

Third term. Intermediates round even if the answer is small. A is the row's largest |expected|. For
reductions it is also the row's largest |input|. For activations whose usual form subtracts numbers
near one, A is at least one, times |up| in a gate. Examples are tanh as 2 sigmoid(2y) - 1 and elu as
exp(y) - 1; gelu as 0.5 y (1 + tanh(u)) and softplus as log(1 + exp(y)). For soft-capped softmax it
is the cap times the row's largest probability. For the KL divergence it is log(N), the size of the
log-probabilities, whose weights sum to one.

Fourth term. It applies to softmax and the KL divergence. A probability may be computed as exp(z -
s) with s = log(sum(exp(z))). The rounding of s, half an ulp of L, is a relative error of every
probability in the row. Moving single inputs does not show it.

Probabilities of a softmax are compared one by one. In the second and third term each has its own
error and size, or the same share as the row's largest. In the fourth term, 4 eps32 L or exp(eps32
L) - 1 counts, whichever is more, up to one.

Masks. In cells of masks, the stand-ins for minus infinity are exact and no logits (`recipes.py`).
They are not moved, and no part of L; their answers count in their own A only. A row of masks alone
is uniform in `masked`. In other recipes it may be off by the rounding of such logits, which is
nothing at -1e4 and everything at -1e9.

Rows are the last dimension. An output of one dimension has one element in each row. Every element
must be within its budget.

A user's reference has no name that tells its properties, so `ops/traits.py` finds them:

- A number among its arguments moves by one fp32 rounding too.
- Eager may round to half precision inside, so its error in the cell's dtype counts in E.
- If elements depend on their own column only, each is a separate row. The effects of moving one
  input at a time are added. In half precision such an element has at least half an ulp of error, if
  its row has any.
- Otherwise, an answer that no input moves counts for itself only, unless nothing in its row moves.
  An example is a mask's fill value. The same holds for an input that is far larger than any answer
  and does not change its row, such as a mask's -1e9.
- Its intermediate results are rounded at random too (`random_rounding.py`), in as many samples as
  the inputs move. Moved inputs do not show the rounding of intermediates that cancel. An operation
  such as tanh is rounded in the parts that kernels compute (`usual_forms.py`). For elements that
  are separate rows, the errors of all operations add up as a root of squares.
- The oracle's own error counts too, where float64 loses all digits: gelu of -9 is not zero.
- A comparison of an input with a number, such as `age >= 65`, keeps its result when inputs move
  (`moves.py`), because all dtypes compare exactly.
- An output of several tensors side by side has a row in each of them (`joined.py`).
- If it calls activations whose usual form cancels, A is at least one, or 64 times the row's largest
  |expected| if that is less.
- Rounding falls either way, so an integer or bool has several right answers. They are those of
  float64, of moved inputs, and of eager in fp32 or its own dtype. An integer may also be off where
  it rounds a calculated number near a tie (`rounding_steps.py`). Torch leaves the order of equal
  values in `topk` and `sort` open, so their numbers have two right values.
- For outputs of eight bits, an ulp is up to a quarter of the number. The first term is 5/8 ulp, for
  the final rounding and intermediates of half precision. Eager's rounding to eight bits does not
  count in E.
- For float64 outputs, float64 stands in place of fp32 above: the arithmetic inside is float64 too.
- An infinite budget allows only the rounding. Beyond the end of the output's dtype, eager's answer
  is correct too, because a fill with the dtype's least number differs in float64. So is eager's NaN
  or infinity, which float64 may not have: exp(100) overflows in fp32.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Tensor

from referee.answers.error_sizes import (
    Tensors,
    difference,
    evaluate,
    finite_size,
    per_row,
    row_max,
    ulp,
)
from referee.answers.joined import with_parts
from referee.answers.moves import EPS32, Moves, perturbed, unit_of
from referee.answers.random_rounding import rounding_noise
from referee.answers.rounding_steps import other_sides
from referee.answers.user_budget import ERRORS, FLOOR, user_allowance, without_steps
from referee.ops.catalogue import SOFTCAP, base_name
from referee.ops.implementation_defined import other_ways
from referee.ops.recipes import FINITE, is_a_mask
from referee.ops.spec import Cell, Op
from referee.ops.task import Task
from referee.ops.torch_compat import computable

ULPS, ULPS_OF_EIGHT_BITS = 1.5, 0.625
# Hardware may flush numbers below fp32's smallest normal one to zero.
TINY = 2.0**-126
PERTURBATIONS = 2
PERTURBATIONS_OF_SCALARS = 4
# Samples for fp32 outputs, which have no larger rounding. With thousands of rows, all of few
# samples are small in some row by chance.
PERTURBATIONS_OF_FP32, MANY_ROWS, PERTURBATIONS_OF_MANY_ROWS = 4, 1024, 8
# In short rows most samples may move all inputs alike, which a mean cancels.
FEW_COLUMNS, PERTURBATIONS_OF_FEW_COLUMNS = 32, 32
CANCELLING = frozenset(
    {"tanh", "elu", "selu", "softplus", "mish", "gelu", "gelu_erf", "bias_gelu", "geglu"}
)
PROBABILITIES = frozenset({"softmax", "softmax_scale", "kl_div"})
APART = frozenset({"softmax", "softmax_scale", "softcap_softmax"})
"""Operations whose answers are probabilities, each compared separately."""
LOGITS_APART = 4.0


@dataclass(frozen=True)
class Expected:
    """The float64 value and the budget of one output, elementwise, and the dtype of the answer.

    `also` has other values that are correct as well.
    """

    value: Tensor
    budget: Tensor
    dtype: torch.dtype
    also: tuple[Tensor, ...] = ()


def expectations(task: Task, cell: Cell, inputs: Sequence[Tensor]) -> tuple[Expected, ...]:
    """The expected value and budget of each output of the cell, for these inputs on any device."""
    units = [unit_of(getattr(torch, spec.dtype)) for spec in cell.outputs]
    found = {unit: _expectations(task, cell, inputs, unit) for unit in dict.fromkeys(units)}
    return tuple(found[unit][index] for index, unit in enumerate(units))


def _expectations(
    task: Task, cell: Cell, inputs: Sequence[Tensor], unit: float
) -> tuple[Expected, ...]:
    """The expectations for arithmetic of this relative step, in every output."""
    task = task.at(cell)
    dtypes: list[torch.dtype] = [getattr(torch, spec.dtype) for spec in cell.outputs]
    users, apart = task.op.is_function, is_apart(task.op)
    masks = (
        tuple(is_a_mask(tensor, cell.values) for tensor in inputs) if cell.values in FINITE else ()
    )
    exact, widths = (
        with_parts(task.oracle, inputs) if users else (evaluate(task.oracle, inputs), [])
    )
    count = max(
        _samples(exact, widths),
        _samples_of_fp32(exact, dtypes, most=PERTURBATIONS_OF_FP32 if users else None),
    )
    centred = not users and "layernorm" in base_name(task.op)
    moves = Moves(masks, centred, count > PERTURBATIONS, unit)
    samples = (
        _moved(task, inputs, perturbed(inputs, number, moves), exact) for number in range(count)
    )
    logits = (
        [torch.where(mask, 0, tensor) for mask, tensor in zip(masks, inputs, strict=True)]
        if masks
        else inputs
    )
    moved = [*samples, *_with_rounded_scalars(task, cell, inputs)] if users else []
    alone = any(map(task.traits.alone, range(len(exact)))) if users else False
    noise = rounding_noise(task.oracle, inputs, exact, moves, count, alone=alone) if users else []
    single = evaluate(
        task.eager, [tensor.float() if tensor.is_floating_point() else tensor for tensor in inputs]
    )
    native = evaluate(task.eager, inputs) if users else ()
    whole = not all(dtype.is_floating_point for dtype in dtypes)
    sides = other_sides(task.oracle, inputs, unit) if whole else []
    sides += other_ways(task.oracle, inputs) if whole else []
    spreads = [] if users else _spreads(exact, chain([single], samples), apart=apart)
    expected = []
    for index, value in enumerate(exact):
        others = [result[index] for result in moved]
        rounded_once = [result[index] for result in (single, *([native] if native else []))]
        others += [_beyond_rounding(other, value, dtypes[index]) for other in rounded_once]
        also: Tensors
        if not value.is_floating_point() or not dtypes[index].is_floating_point:
            also = (*(others if users else ()), *(side[index] for side in sides))
            expected.append(
                Expected(value, torch.zeros_like(value, dtype=torch.float64), dtypes[index], also)
            )
            continue
        value = value.double()
        least = _ulps(dtypes[index]) * ulp(value, dtypes[index])
        if users:
            budget = least + user_allowance(
                task,
                index,
                value,
                others,
                [one[index] for one in noise],
                dtypes[index],
                inputs,
                widths[index],
            )
            # For an infinite value only the value is compared.
            budget = torch.where(budget.isfinite() | ~value.isfinite(), budget, least)
            also = tuple(rounded_once)
        else:
            size = _magnitude(task.op, _beside(value, masks), logits)
            size = torch.maximum(size, finite_size(value)) if masks else size
            budget = least + ERRORS * spreads[index] + FLOOR * EPS32 * size
            share = EPS32 * _largest_logit(task.op, value, logits)
            budget, also = (
                budget
                + (_shared(share, finite_size(value)) if apart else share * finite_size(value)),
                (),
            )
        expected.append(Expected(value, budget + TINY, dtypes[index], also))
    return tuple(expected)


def _ulps(dtype: torch.dtype) -> float:
    return ULPS_OF_EIGHT_BITS if dtype.itemsize == 1 else ULPS


def _beyond_rounding(other: Tensor, value: Tensor, dtype: torch.dtype) -> Tensor:
    """Eager's answer, without its rounding to a float of eight bits."""
    if not (value.is_floating_point() and dtype.is_floating_point and dtype.itemsize == 1):
        return other
    exact, error = value.double(), other.double() - value
    rounding = 0.5 * ulp(exact, dtype).nan_to_num(posinf=0.0)
    return exact + error.sign() * (error.abs() - rounding).clamp(min=0.0)


def _with_rounded_scalars(task: Task, cell: Cell, inputs: Sequence[Tensor]) -> Iterator[Tensors]:
    """The oracle's answers with one number moved by one fp32 rounding, each in turn.

    A kernel gets its numbers as fp32.
    """
    for number, scalar in enumerate(cell.scalars):
        if isinstance(scalar.value, float):
            moved = replace(scalar, value=scalar.value * (1.0 - EPS32 / 2))
            other = replace(
                cell, scalars=(*cell.scalars[:number], moved, *cell.scalars[number + 1 :])
            )
            yield evaluate(task.at(other).oracle, inputs)


def is_apart(op: Op) -> bool:
    """Whether every element of the answer is compared separately, independent of its row."""
    return not op.is_function and base_name(op) in APART


def _spreads(exact: Tensors, others: Iterable[Tensors], *, apart: bool) -> list[Tensor]:
    """The largest error of the samples for each output, as a row maximum.

    With `apart`, it is each element's own error, or the relative error of the row's largest
    element. Samples are evaluated one at a time, because all together would need much memory.
    """
    found: list[Tensor] = []
    for results in others:
        errors = [
            difference(other, value.double()) for other, value in zip(results, exact, strict=True)
        ]
        errors = errors if apart else [row_max(error) for error in errors]
        found = (
            [torch.maximum(one, error) for one, error in zip(found, errors, strict=True)]
            if found
            else errors
        )
    return (
        [_own_share(error, finite_size(value)) for error, value in zip(found, exact, strict=True)]
        if apart
        else found
    )


def _shared(share: Tensor | float, size: Tensor) -> Tensor:
    """The error from rounding the logarithm of a row's sum: a factor of each probability, up to one
    in total.
    """
    share = torch.as_tensor(share, dtype=torch.float64, device=size.device)
    factor = torch.maximum(LOGITS_APART * share, torch.expm1(share)).clamp(max=1.0 / TINY)
    return (factor * size).clamp(max=1.0)


def _own_share(error: Tensor, size: Tensor) -> Tensor:
    largest = row_max(size).clamp(min=TINY)
    return torch.maximum(error, size * (row_max(error) / largest))


def _beside(value: Tensor, masks: Sequence[Tensor]) -> Tensor:
    """The answers, with zero for masks."""
    return torch.where(masks[0], 0.0, value) if masks and masks[0].shape == value.shape else value


def least_budget(value: Tensor, dtype: torch.dtype, *, alone: bool = False) -> Tensor:
    """A lower bound of the budget for any operation, from the finite float64 `value` alone.

    An ulp is more than eps / 2 of its number, and at least that of the smallest normal number. A is
    at least the row's largest |value|, or |value| if elements are compared one by one.
    """
    info = torch.finfo(dtype)
    size = value.abs()
    largest = size if alone else row_max(size)
    return size.clamp(min=2 * info.smallest_normal) * (_ulps(dtype) / 2 * info.eps) + largest * (
        FLOOR * unit_of(dtype)
    )


def _samples(exact: Tensors, widths: Sequence[Sequence[int]]) -> int:
    rows = all(value.dim() > 1 and value.shape[-1] > 1 for value in exact) and all(
        min(parts, default=2) > 1 for parts in widths
    )
    return PERTURBATIONS if rows else PERTURBATIONS_OF_SCALARS


def _samples_of_fp32(exact: Tensors, dtypes: Sequence[torch.dtype], most: int | None) -> int:
    shapes = [
        value.shape
        for value, dtype in zip(exact, dtypes, strict=True)
        if dtype == torch.float32 and value.dim()
    ]
    if not shapes:
        return 0
    if most:
        return most
    if any(len(shape) > 1 and shape[-1] <= FEW_COLUMNS for shape in shapes):
        return PERTURBATIONS_OF_FEW_COLUMNS
    return (
        PERTURBATIONS_OF_MANY_ROWS
        if max(shape[0] for shape in shapes) >= MANY_ROWS
        else PERTURBATIONS_OF_FP32
    )


def _moved(
    task: Task, inputs: Sequence[Tensor], moved: Sequence[Tensor], exact: Tensors
) -> Tensors:
    """The oracle's answers to moved inputs. For a user's reference, comparisons of inputs keep
    their results.
    """
    if task.op.is_function:
        results = evaluate(without_steps(task, inputs), moved)
        # A root or logarithm whose argument was compared before may now get a number outside its
        # domain.
        if all(
            bool((computable(result).isfinite() | ~value.isfinite()).all())
            for result, value in zip(results, exact, strict=True)
        ):
            return results
    return evaluate(task.oracle, moved)


def _magnitude(op: Op, value: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    """A of the module's formula, broadcastable to `value`."""
    found = finite_size(value) if is_apart(op) else row_max(finite_size(value))
    if base_name(op) == "softcap_softmax":
        found = found * SOFTCAP
    if base_name(op) == "kl_div":
        found = found.clamp(min=math.log(max(2, inputs[0].shape[-1])))
    if CANCELLING & {base_name(op), *op.acts}:
        found = found.clamp(min=1.0)
        if op.kind == "gate_up":
            found = torch.maximum(found, row_max(finite_size(inputs[1])))
    for tensor in inputs:
        if tensor.is_floating_point() and tensor.dim() > value.dim() and value.numel():
            found = torch.maximum(found, per_row(finite_size(tensor), value))
    return found


def _largest_logit(op: Op, value: Tensor, inputs: Sequence[Tensor]) -> Tensor | float:
    """L of the module's formula, broadcastable to `value`; zero for other operations."""
    name = base_name(op)
    if name not in PROBABILITIES or not value.numel():
        return 0.0
    sizes = [
        per_row(finite_size(tensor), value)
        for tensor in (inputs if name == "kl_div" else inputs[:1])
    ]
    largest = torch.stack(sizes).amax(0)
    return largest * finite_size(inputs[1]) if name == "softmax_scale" else largest
