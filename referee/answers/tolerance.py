"""How far an answer may be from float64: the error budget of each element, derived and not tuned per operation.

A kernel is asked for what eager PyTorch is asked for: fp32 arithmetic inside and one rounding to the output's dtype. So

    budget = 1.5 ulp(expected)                      in the output's dtype
           + 8 max(|fp32 eager - float64|, |float64 of inputs moved by one fp32 rounding - float64|)    row maximum
           + 16 eps32 A                             A: magnitude of the row's intermediates
           + eps32 L |expected|                     L: the row's largest logit, where the answer is a probability's

- 1.5 ulp: the final rounding (1/2 ulp) and at most one intermediate rounding to that dtype (up to 1 ulp of the product).
- The second line is what fp32 can do on these data: eager's own fp32 error is one sample of it; the sensitivity of the
  float64 result to input changes of 2^-24 relative bounds any backward-stable algorithm and does not depend on eager's luck (Higham,
  Accuracy and Stability of Numerical Algorithms, 2002, section 1.6). Inputs are moved down or not at all, at random, and then the
  others: a row may owe its answer to a single input. Where a mean is taken away, what is not moved down is moved up, because the mean is
  rounded too, and would take half of such moves with it. Of answers in fp32 two such pairs are made, four where there are thousands of
  rows, and eight where rows are short: in some row the samples of one pair are small by chance. Other summation orders and exact
  rewritings stay within a small multiple.
- The third is for intermediates that round although the answer is small. A is the row's largest |expected|; where the output has
  fewer dimensions than an input (a reduction) also the row's largest |input|; and for activations whose usual form subtracts
  numbers near one (tanh as 2 sigmoid(2y) - 1, elu as exp(y) - 1, gelu as 0.5 y (1 + tanh(u)), softplus as log(1 + exp(y))) at
  least one, times |up| in a gate; for soft-capped softmax the cap, times the row's largest probability; for the KL divergence the
  log-probabilities it is the small difference of, log(N) in size, weighted by probabilities that sum to one.
- The last is for softmax and the KL divergence alone: a probability may be computed as exp(z - s) with s = log(sum(exp(z))), whose own
  rounding (half an ulp of L) every probability of the row shares as a relative error. No change of single inputs shows that.

In cells of masks the least number of a dtype is exact, and no logit: it is not moved, and no part of L. A row of nothing else is uniform.

Rows are the last dimension; an output of one dimension has one element a row. There is no share of elements that may be wrong.

For a user's reference, of which no name says anything, `ops/traits.py` says what it does:
- Its eager may round to half precision in the middle, so its own error in the cell's dtype counts in the second line.
- Where no element depends on other columns than its own, each is a row of its own: a large neighbour excuses nothing, and what inputs
  moved one at a time do is added up. Of the error in half precision such an element has half an ulp at least, where its row has any.
- Elsewhere what no change of the inputs moves, such as the number that a mask fills in, excuses nothing but itself, unless nothing in
  its row moves. Nor does an input far larger than any answer in a row that does not change with it, as a mask's -1e9.
- What it compares an input itself with, as in `age >= 65`, keeps its side when inputs move (`steps.py`): all dtypes compare exactly.
- An output that is a few tensors side by side has a row in each of them (`joined.py`).
- Where it calls activations whose usual form cancels, A is at least one, or 64 times the row's largest |expected| if that is less: the
  scale of its answers is the user's.
- An integer or bool may be what float64, its perturbed inputs, or eager in fp32 or its own dtype gives: rounding falls either way.
- A budget that is not finite, because dtypes end in different places, allows nothing but the rounding. Beyond the end of the output's
  dtype eager's own answer is right too: a fill with the dtype's least number is another number in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from referee.answers.joined import with_parts
from referee.answers.steps import moved_beside_steps
from referee.ops.catalogue import SOFTCAP, base_name
from referee.ops.spec import Cell, Op
from referee.ops.task import Task
from referee.ops.traits import Traits

ULPS = 1.5
ERRORS = 8.0
FLOOR = 16.0
EPS32 = 2.0**-23
# Below the smallest normal fp32 number hardware may flush to zero.
TINY = 2.0**-126
PERTURBATIONS = 2
PERTURBATIONS_OF_SCALARS = 4
# Of fp32, where no larger rounding covers it: in one of thousands of rows all of few samples are small by chance.
PERTURBATIONS_OF_FP32, MANY_ROWS, PERTURBATIONS_OF_MANY_ROWS = 4, 1024, 8
# Of a row of three inputs that are moved or are not, most samples may move all alike, which a mean takes away.
FEW_COLUMNS, PERTURBATIONS_OF_FEW_COLUMNS = 32, 16
# Inputs so many times larger than any answer are looked at, by halves of their size so often, with this relative change.
OUTLIER, OUTLIERS, CHANGE = 64.0, 4, 2.0**-10

CANCELLING = frozenset({"tanh", "elu", "selu", "softplus", "mish", "gelu", "gelu_erf", "bias_gelu", "geglu"})

PROBABILITIES = frozenset({"softmax", "softmax_scale", "kl_div"})

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Expected:
    """One output's float64 value and allowance, elementwise, the dtype the answer must have, and other values that are right as well."""

    value: Tensor
    budget: Tensor
    dtype: torch.dtype
    also: tuple[Tensor, ...] = ()


def ulp(value: Tensor, dtype: torch.dtype) -> Tensor:
    """The spacing of `dtype` at |value| (float64 in, float64 out); at zero its smallest subnormal. Infinite for inf and NaN."""
    info = torch.finfo(dtype)
    exponent = torch.frexp(value.abs().clamp(min=info.smallest_normal)).exponent - 1
    spacing = torch.ldexp(torch.full_like(value, info.eps), exponent)
    return torch.where(value.isfinite(), spacing, torch.inf)


def expectations(task: Task, cell: Cell, inputs: Sequence[Tensor]) -> tuple[Expected, ...]:
    """What each output of the cell must be and how far it may be off, for these inputs (any device)."""
    dtypes: list[torch.dtype] = [getattr(torch, spec.dtype) for spec in cell.outputs]
    users, masked = task.op.origin == "user", cell.values == "masked"
    exact, widths = with_parts(task.oracle, inputs) if users else (evaluate(task.oracle, inputs), [])
    count = max(_samples(exact, widths), _samples_of_fp32(exact, dtypes, most=PERTURBATIONS_OF_FP32 if users else None))
    moves = _Moves(masked, not users and "layernorm" in base_name(task.op), count > PERTURBATIONS)
    samples = (_moved(task, inputs, _perturbed(inputs, number, moves), exact) for number in range(count))
    logits = [torch.where(_is_a_mask(tensor), 0.0, tensor) for tensor in inputs] if masked else inputs
    moved = list(samples) if users else []
    single = evaluate(task.eager, [tensor.float() if tensor.is_floating_point() else tensor for tensor in inputs])
    native = evaluate(task.eager, inputs) if users else ()
    spreads = [] if users else _spreads(exact, chain([single], samples))
    expected = []
    for index, value in enumerate(exact):
        others = [result[index] for result in (*moved, single, *([native] if native else []))]
        also: Tensors
        if not value.is_floating_point() or not dtypes[index].is_floating_point:
            also = tuple(others) if users else ()
            expected.append(Expected(value, torch.zeros_like(value, dtype=torch.float64), dtypes[index], also))
            continue
        value = value.double()
        least = ULPS * ulp(value, dtypes[index])
        if users:
            budget = least + _user_allowance(task, index, value, others, dtypes[index], inputs, widths[index])
            # Of an infinite value the comparison looks at the value alone.
            budget = torch.where(budget.isfinite() | ~value.isfinite(), budget, least)
            also = (others[-1],)
        else:
            budget = least + ERRORS * spreads[index] + FLOOR * EPS32 * _magnitude(task.op, value, inputs)
            budget, also = budget + EPS32 * _largest_logit(task.op, value, logits) * _size(value), ()
        expected.append(Expected(value, budget + TINY, dtypes[index], also))
    return tuple(expected)


def _spreads(exact: Tensors, others: Iterable[Tensors]) -> list[Tensor]:
    """How far others are off, the row's maximum, for each output. One at a time: of many rows all together would take much memory."""
    found: list[Tensor] = []
    for results in others:
        errors = [_row_max(_difference(other, value.double())) for other, value in zip(results, exact, strict=True)]
        found = [torch.maximum(one, error) for one, error in zip(found, errors, strict=True)] if found else errors
    return found


def _user_allowance(
    task: Task, index: int, value: Tensor, others: Sequence[Tensor], dtype: torch.dtype, inputs: Sequence[Tensor], widths: Sequence[int]
) -> Tensor:
    """All lines of the budget but the first, for one output of a user's reference; the last two of `others` are eager's."""
    traits = task.traits
    alone = traits.alone(index)
    errors = [_difference(other, value) for other in others]
    largest = [] if alone and not traits.probabilities else _largest_that_count(task, index, value, inputs)
    if alone:
        native = torch.minimum(torch.maximum(errors[-1], 0.5 * ulp(value, dtype).nan_to_num(posinf=0.0)), _row_max(errors[-1]))
        spread = torch.stack([*errors[:-1], native, _one_by_one(task, index, value, inputs)]).amax(0)
        allowance = ERRORS * spread + FLOOR * EPS32 * _unless_cancelling(traits, _size(value), value)
    elif len(widths) == 1:
        allowance = _of_one_part(traits, value, errors, largest)
    else:
        parts = zip(*(torch.split(tensor, list(widths), -1) for tensor in (value, *errors)), strict=True)
        allowance = torch.cat([_of_one_part(traits, part, own, largest).expand_as(part) for part, *own in parts], -1)
    if traits.probabilities and value.numel():
        # Its logits are what it makes of its inputs; these are what is known of their size.
        allowance = allowance + EPS32 * reduce(torch.maximum, (size for _, size in largest), value.new_zeros(())) * _size(value)
    return allowance


def _of_one_part(traits: Traits, value: Tensor, errors: Sequence[Tensor], largest: Sequence[tuple[int, Tensor]]) -> Tensor:
    """The second and the third line for an output whose rows share their rounding, or for one of the parts it is joined of."""
    moves = reduce(torch.logical_or, (error > 0 for error in errors[:-2]))
    shared = moves | (_row_max(moves) == 0)
    spread = reduce(torch.maximum, (_row_max_of(error, shared) for error in errors))
    magnitude = _row_max_of(_size(value), shared)
    for elements, size in largest:
        if elements > value.numel() > 0:
            magnitude = torch.maximum(magnitude, size)
    return ERRORS * spread + FLOOR * EPS32 * _unless_cancelling(traits, magnitude, value)


def _unless_cancelling(traits: Traits, magnitude: Tensor, value: Tensor) -> Tensor:
    return torch.maximum(magnitude, (64.0 * _row_max(_size(value))).clamp(max=1.0)) if traits.cancelling else magnitude


def _one_by_one(task: Task, index: int, value: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    """What one rounding of each input does, added up: where several move at once, one may undo what another does to an element.

    So may numbers of both signs in a sum over rows: those of either sign move alone as well, and what does most counts.
    """
    total = torch.zeros_like(value)
    for position, tensor in enumerate(inputs):
        if tensor.is_floating_point():
            exact, most = tensor.double(), torch.zeros_like(value)
            for some in (torch.ones_like(exact, dtype=torch.bool), exact > 0, exact < 0):
                moved = [*inputs[:position], torch.where(some, exact * (1.0 - EPS32 / 2), exact), *inputs[position + 1 :]]
                most = torch.maximum(most, _difference(evaluate(_beside_steps(task, inputs), moved)[index], value))
            total += most
    return total


def _largest_that_count(task: Task, index: int, value: Tensor, inputs: Sequence[Tensor]) -> list[tuple[int, Tensor]]:
    """Of each floating input how many elements it has and its largest for each row of `value`, or overall where rows do not match.

    What is far larger than any answer does not count in a row that stays as it is when it changes, as a mask's -1e9 behind a softmax.
    """
    found = []
    usual = OUTLIER * _size(value).amax() if value.numel() else value.new_zeros(())
    for position, tensor in enumerate(inputs):
        if not tensor.is_floating_point() or not tensor.numel() or not value.numel():
            continue
        size, most = _size(tensor), torch.zeros_like(_row_max(value))
        undecided = torch.ones_like(most, dtype=torch.bool)
        for _ in range(OUTLIERS):
            outlying = size > size.amax() / 2
            if not bool(size.amax() > usual) or not bool(undecided.any()):
                break
            changed = torch.where(outlying, tensor.double() * (1.0 - CHANGE), tensor.double())
            other = evaluate(task.oracle, [*inputs[:position], changed, *inputs[position + 1 :]])[index]
            counts = undecided & _row_max(other.double() != value)
            most = torch.where(counts, _per_row(size, value), most)
            undecided &= ~counts
            size = torch.where(outlying, 0.0, size)
        found.append((tensor.numel(), torch.where(undecided, _per_row(size, value), most)))
    return found


def least_budget(value: Tensor, dtype: torch.dtype, *, alone: bool = False) -> Tensor:
    """What the module's formula allows whatever the operation, and needs nothing but the finite float64 `value`: a lower bound.

    An ulp is more than eps / 2 of its number and never below that of the smallest normal one; A is at least the row's largest |value|,
    or |value| where each element stands alone.
    """
    info = torch.finfo(dtype)
    size = value.abs()
    largest = size if alone else _row_max(size)
    return size.clamp(min=2 * info.smallest_normal) * (ULPS / 2 * info.eps) + largest * (FLOOR * EPS32)


def evaluate(function: Callable[..., Any], inputs: Sequence[Tensor]) -> Tensors:
    """The outputs of an oracle or of eager PyTorch, always as a tuple."""
    result = function(*inputs)
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _samples(exact: Tensors, widths: Sequence[Sequence[int]]) -> int:
    rows = all(value.dim() > 1 and value.shape[-1] > 1 for value in exact) and all(min(parts, default=2) > 1 for parts in widths)
    return PERTURBATIONS if rows else PERTURBATIONS_OF_SCALARS


def _samples_of_fp32(exact: Tensors, dtypes: Sequence[torch.dtype], most: int | None) -> int:
    shapes = [value.shape for value, dtype in zip(exact, dtypes, strict=True) if dtype == torch.float32 and value.dim()]
    if not shapes:
        return 0
    if most:
        return most
    if any(len(shape) > 1 and shape[-1] <= FEW_COLUMNS for shape in shapes):
        return PERTURBATIONS_OF_FEW_COLUMNS
    return PERTURBATIONS_OF_MANY_ROWS if max(shape[0] for shape in shapes) >= MANY_ROWS else PERTURBATIONS_OF_FP32


def _moved(task: Task, inputs: Sequence[Tensor], moved: Sequence[Tensor], exact: Tensors) -> Tensors:
    """What the oracle makes of moved inputs; of a user's reference without the steps that inputs themselves may take."""
    if task.op.origin == "user":
        results = evaluate(_beside_steps(task, inputs), moved)
        # A root or logarithm whose argument was compared first may be of a number beyond its end now.
        if all(bool((result.isfinite() | ~value.isfinite()).all()) for result, value in zip(results, exact, strict=True)):
            return results
    return evaluate(task.oracle, moved)


def _beside_steps(task: Task, inputs: Sequence[Tensor]) -> Callable[..., Any]:
    return lambda *moved: moved_beside_steps(task.oracle, inputs, moved)


@dataclass(frozen=True)
class _Moves:
    """How inputs are moved: not what is a mask's, up as well as down, and those of one shape alike or against each other."""

    masked: bool
    centred: bool
    paired: bool


def _perturbed(inputs: Sequence[Tensor], number: int, moves: _Moves) -> list[Tensor]:
    """The inputs, some moved down by one rounding. Samples come in pairs: the second moves what the first left where it was.

    Where there are several pairs, inputs of one shape move alike in every second one and against each other in the rest: if each moved as
    it likes, both might undo each other in all samples, in x + r - mean(x + r), just where a row is not saturated.
    """
    moved = []
    pair, second = divmod(number, 2)
    shapes: list[torch.Size] = []
    for tensor in inputs:
        if not tensor.is_floating_point():
            moved.append(tensor)
            continue
        before = shapes.count(tensor.shape) if moves.paired else 0
        turned = second ^ (before % 2 if pair % 2 == 0 else 0)
        seed = pair + 1_000_003 * (shapes.index(tensor.shape) if before else len(shapes))
        shapes.append(tensor.shape)
        generator = torch.Generator(device=tensor.device).manual_seed(seed)
        lowered = torch.randint(0, 2, tensor.shape, generator=generator, device=tensor.device, dtype=torch.int8).bitwise_xor_(turned)
        up, down = EPS32 / 2 if moves.centred else 0.0, EPS32 / 2
        found = lowered.double().mul_(-up - down).add_(1.0 + up).mul_(tensor)
        moved.append(torch.where(_is_a_mask(tensor), tensor.double(), found) if moves.masked else found)
    return moved


def _is_a_mask(tensor: Tensor) -> Tensor:
    return tensor == (torch.finfo if tensor.is_floating_point() else torch.iinfo)(tensor.dtype).min


def _difference(other: Tensor, value: Tensor) -> Tensor:
    # Where either is not finite there is nothing to learn about rounding.
    return (other.double() - value).abs().nan_to_num(nan=0.0, posinf=0.0)


def _row_max(error: Tensor) -> Tensor:
    if error.dim() < 2 or not error.shape[-1]:
        return error
    return error.amax(-1, keepdim=True)


def _row_max_of(error: Tensor, shared: Tensor) -> Tensor:
    """Of each element its own or, if that is more, the largest that its row shares."""
    return torch.maximum(_row_max(torch.where(shared, error, 0.0)), error)


def _magnitude(op: Op, value: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    """A of the module's formula, broadcastable to `value`."""
    found = _row_max(_size(value))
    if base_name(op) == "softcap_softmax":
        found = found * SOFTCAP
    if base_name(op) == "kl_div":
        found = found.clamp(min=math.log(max(2, inputs[0].shape[-1])))
    if CANCELLING & {base_name(op), *op.acts}:
        found = found.clamp(min=1.0)
        if op.kind == "gate_up":
            found = torch.maximum(found, _row_max(_size(inputs[1])))
    for tensor in inputs:
        if tensor.is_floating_point() and tensor.dim() > value.dim() and value.numel():
            found = torch.maximum(found, _per_row(_size(tensor), value))
    return found


def _largest_logit(op: Op, value: Tensor, inputs: Sequence[Tensor]) -> Tensor | float:
    """L of the module's formula, broadcastable to `value`; zero for other ops."""
    name = base_name(op)
    if name not in PROBABILITIES or not value.numel():
        return 0.0
    sizes = [_per_row(_size(tensor), value) for tensor in (inputs if name == "kl_div" else inputs[:1])]
    largest = torch.stack(sizes).amax(0)
    return largest * _size(inputs[1]) if name == "softmax_scale" else largest


def _size(tensor: Tensor) -> Tensor:
    return tensor.abs().double().nan_to_num(nan=0.0, posinf=0.0)


def _per_row(size: Tensor, value: Tensor) -> Tensor:
    """The largest of `size` in each row of `value`, or overall where their rows do not match."""
    if not value.dim() or size.shape[0] != value.shape[0]:
        return size.max()
    return size.reshape(size.shape[0], -1).amax(-1).reshape(-1, *([1] * (value.dim() - 1)))
