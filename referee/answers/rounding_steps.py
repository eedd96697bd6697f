"""The other right answers of a function that rounds a calculated number to an integer.

A calculated number `u` near k + 0.5 lies on either side of it, by the error of fp32 arithmetic. So
both k and k + 1 are right. An integer q is right if `|q - u| <= 0.5 + b`, with a budget of the kind
that floats have (`tolerance.py`):

    b = 8 E + 16 eps32 |u|               E: the error of rounded intermediates, as the row's maximum.

A GPU's division is off by up to two units of the last place, which `b` covers; E covers sums that
cancel. The function runs again with every such `u` moved up by `b`, and once more with `u` moved
down. A clamp or an offset that follows thus has its effect. The same holds for floor, ceil and
trunc, whose steps are at the integers.

Where arithmetic has no error, `u` does not move: of `x * 4`, every tie has one right answer. Two
evaluations show the error. They move each result that fp32 cannot hold, at random within one
rounding. They also move each quotient of two tensors whose divisor is no power of two. An exact `u`
is the same in both.

Limits: if `b` is more than 0.5, integers between `u - b` and `u + b` are not all tried. Comparisons
and divisions with remainder do not count as steps. If a scale comes from the data, halves that are
rounded away from zero show only in rows whose scale is a power of two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from referee.answers.error_sizes import Tensors, difference, evaluate, row_max
from referee.answers.user_budget import ERRORS, FLOOR
from referee.ops.torch_compat import Mode

EVALUATIONS = 2
_STEPS = frozenset("round floor ceil trunc".split())

Chosen = Callable[[int, Tensor], Tensor]
"""The number that a step takes, from the step's position in the function and its number there."""


def other_sides(
    function: Callable[..., Any], inputs: Sequence[Tensor], unit: float
) -> list[Tensors]:
    """The outputs of the float64 `function` with the numbers of its steps moved up, and down.

    The list is empty if the function has no steps. `unit` is the relative step of the arithmetic.
    """
    numbers: list[Tensor] = []

    def noted(position: int, number: Tensor) -> Tensor:
        numbers.append(number.clone())
        return number

    exact = _with_steps(function, inputs, noted)
    errors = [torch.zeros_like(number) for number in numbers]

    def unmoved(position: int, number: Tensor) -> Tensor:
        if not _is_same_step(numbers, position, number):
            return number
        errors[position] = torch.maximum(errors[position], difference(number, numbers[position]))
        return numbers[position]

    for seed in range(EVALUATIONS if numbers else 0):
        _with_steps(function, inputs, unmoved, _Rounding(seed, unit))
    budgets = [
        torch.where(error > 0, ERRORS * row_max(error) + FLOOR * unit * number.abs(), 0.0)
        for number, error in zip(numbers, errors, strict=True)
    ]
    found = []
    for sign in (1.0, -1.0) if numbers else ():

        def moved(position: int, number: Tensor, sign: float = sign) -> Tensor:
            known = _is_same_step(numbers, position, number)
            return number + sign * budgets[position] if known else number

        found.append(_with_steps(function, inputs, moved))
    shapes = [output.shape for output in exact]
    return [outputs for outputs in found if [output.shape for output in outputs] == shapes]


def _with_steps(
    function: Callable[..., Any],
    inputs: Sequence[Tensor],
    chosen: Chosen,
    rounding: _Rounding | None = None,
) -> Tensors:
    with _Steps(chosen, rounding):
        return evaluate(function, inputs)


def _is_same_step(numbers: Sequence[Tensor], position: int, number: Tensor) -> bool:
    """Whether the function takes its steps in the order of its first evaluation."""
    return position < len(numbers) and number.shape == numbers[position].shape


class _Rounding:
    """Moves results that may have an error, at random within one rounding."""

    def __init__(self, seed: int, unit: float) -> None:
        self._seed, self._unit = seed, unit

    def move(self, result: Tensor, divisor: Tensor | None) -> None:
        """Change a float64 result in place; `divisor` is that of a quotient."""
        self._seed += EVALUATIONS
        generator = torch.Generator(device=result.device).manual_seed(self._seed)
        chance = torch.rand(
            result.shape, generator=generator, device=result.device, dtype=torch.float64
        )
        factor = chance.sub_(0.5).mul_(self._unit).add_(1.0)
        moves = result.float().double() != result
        if divisor is not None:
            moves |= torch.frexp(divisor.double()).mantissa.abs() != 0.5
        result.mul_(torch.where(moves, factor, 1.0))


class _Steps(Mode):
    def __init__(self, chosen: Chosen, rounding: _Rounding | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._chosen, self._rounding, self._position = chosen, rounding, 0

    def operation(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        at = _step(function, args, kwargs)
        if at is None:
            divisor = _divisor(function, args)
            result = function(*args, **kwargs)
            if self._rounding and not function.is_view:
                for leaf in filter(_is_float64, tree_leaves(result)):
                    self._rounding.move(leaf, divisor)
            return result
        number = self._chosen(self._position, args[at])
        self._position += 1
        if function._schema.is_mutable and at == 0:
            args[0].copy_(number)
            return function(*args, **kwargs)
        return function(*args[:at], number, *args[at + 1 :], **kwargs)


def _step(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
    """The position of the number that the operation rounds to an integer; None for others."""
    name = _name(func)
    if name == "copy":
        return 1 if _is_float64(args[1]) and _is_integer(args[0].dtype) else None
    if not args or not _is_float64(args[0]):
        return None
    if name == "_to_copy":
        return 0 if _is_integer(kwargs.get("dtype") or torch.float64) else None
    # A rounding to decimals divides.
    return 0 if name in _STEPS and "decimals" not in str(func) else None


def _divisor(func: Any, args: tuple[Any, ...]) -> Tensor | None:
    at = {"div": 1, "reciprocal": 0}.get(_name(func))
    return args[at].clone() if at is not None and isinstance(args[at], Tensor) else None


def _name(func: Any) -> str:
    return str(func).removeprefix("aten.").partition(".")[0].removesuffix("_")


def _is_integer(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool


def _is_float64(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.dtype == torch.float64
