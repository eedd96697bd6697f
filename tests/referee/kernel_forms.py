"""A function evaluated in fp32, with each operation in the form that kernels use.

Triton has no tanh, expm1 or log1p; kernels use exp2 and log2, multiply by reciprocals, and add in
another order than PyTorch. A referee that accepts exact kernels accepts these answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions

from referee.answers.compare import compare
from referee.answers.error_sizes import evaluate
from referee.answers.usual_forms import USUAL_FORMS
from referee.ops.spec import Cell
from referee.ops.task import Task
from referee.ops.torch_compat import Mode

_ATEN = torch.ops.aten
_LOG2_E, _LN_2 = 1.4426950408889634, 0.6931471805599453


def _exp(x: Tensor) -> Tensor:
    return torch.exp2(x * _LOG2_E)


def _log(x: Tensor) -> Tensor:
    return torch.log2(x) * _LN_2


def _sum(x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    dims = list(dim or range(x.dim()))
    return torch.sum(x.flip(dims), dims, keepdim)


def _mean(x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    return _sum(x, dim, keepdim) * (1.0 / _count(x, dim))


def _count(x: Tensor, dim: Sequence[int] | None) -> int:
    return math.prod(x.shape[one] for one in dim or range(x.dim()))


def _var_mean(
    x: Tensor, dim: Sequence[int] | None = None, correction: int = 1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    mean = _mean(x, dim, True)
    total, count = _sum((x - mean).square(), dim, keepdim), float(_count(x, dim) - correction)
    return total / torch.tensor(count), mean if keepdim else mean.reshape(total.shape)


def _softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    shares = _exp(x - x.amax(dim, keepdim=True))
    return shares * torch.reciprocal(_sum(shares, [dim], True))


def _logsumexp(x: Tensor, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    largest = x.amax(list(dim), keepdim=True)
    largest = torch.where(largest.isinf(), 0.0, largest)
    found = largest + _log(_sum(_exp(x - largest), dim, True))
    return found if keepdim else found.squeeze(list(dim))


_DECOMPOSED = "native_layer_norm native_group_norm silu_backward sigmoid_backward"

_FORMS: dict[str, Callable[..., Any]] = {
    **USUAL_FORMS,
    **{
        name: get_decompositions([found])[found]
        for name in _DECOMPOSED.split()
        if (found := getattr(_ATEN, name).default)
    },
    "exp": _exp,
    "log": _log,
    "rsqrt": lambda x: torch.reciprocal(torch.sqrt(x)),
    "mean": lambda x, dim=None, keepdim=False, dtype=None: _mean(x, dim, keepdim),
    "var_mean": _var_mean,
    "var": lambda *args, **named: _var_mean(*args, **named)[0],
    "std": lambda *args, **named: torch.sqrt(_var_mean(*args, **named)[0]),
    "_softmax": _softmax,
    "logsumexp": _logsumexp,
}


class _KernelForms(Mode):  # type: ignore[no-untyped-call]
    def operation(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if not any(isinstance(one, Tensor) and one.is_floating_point() for one in args):
            return function(*args, **kwargs)
        if function == _ATEN.div.Tensor and isinstance(args[1], Tensor):
            return args[0] * torch.reciprocal(args[1])
        form = _FORMS.get(str(function).removeprefix("aten.").partition(".")[0])
        if form is None or "out" in kwargs:
            return function(*args, **kwargs)
        with self:
            return form(*args, **kwargs)


def in_kernel_forms(function: Callable[..., Any], inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    given = [one.float() if one.is_floating_point() else one for one in inputs]
    with _KernelForms():  # type: ignore[no-untyped-call]
        return evaluate(function, given)


def rejected_cells(
    judged: Task, seed: int, function: Callable[..., Any] | None = None
) -> list[tuple[str, str]]:
    """The required cells where the forms of `function` are wrong, and why.

    The function is the reference itself by default.
    """
    found = []
    for cell in judged.required:
        inputs = judged.inputs(cell, seed)
        outputs = in_kernel_forms(
            function or judged.at(cell).eager, [one.clone() for one in inputs]
        )
        result = compare(judged, cell, inputs, _of_dtypes(cell, outputs))
        if result.status != "pass":
            found.append((cell.name, str(result.detail)))
    return found


def _of_dtypes(cell: Cell, outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(
        one.to(getattr(torch, spec.dtype)).contiguous()
        for one, spec in zip(outputs, cell.outputs, strict=True)
    )
