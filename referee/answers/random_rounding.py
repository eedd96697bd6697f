"""Evaluates a reference with its intermediate results rounded at random, as fp32 rounds them.

Source: Monte Carlo arithmetic (D. Stott Parker, UCLA CSD-970002, 1997). Moved inputs (`moves.py`) do
not show the rounding of intermediates that cancel. Examples are `p * (g - sum(p * g))` in a gradient
of softmax, and `x - logsumexp(x)` for a likely class.

A step is an operation whose result jumps, such as a comparison, `floor` or `argmax`. Rounding must not
change it here: the error of a jump hides all other errors. So each step keeps the result that it has
without rounding, and so does a branch of Python code. `rounding_steps.py` has the steps that may fall
on either side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from referee.answers.error_sizes import difference, evaluate
from referee.answers.moves import EPS32, EPS64, Moves, perturbed
from referee.answers.usual_forms import USUAL_FORMS
from referee.ops.torch_compat import Mode

OWN_UNIT = 2.0 * EPS64
"""Relative step that shows the oracle's own error. Half of it still changes every float64."""

MOST_OPERATIONS = 64
"""Number of rounding operations that are tried one by one. Their evaluations grow with its square."""

_ROUNDING = frozenset(
    "add sub rsub mul div reciprocal addcmul addcdiv lerp square pow sqrt rsqrt exp exp2 log log2 log10 "
    "sin cos tan erf erfc "
    "sum mean var var_mean std std_mean prod cumsum cumprod logsumexp logcumsumexp linalg_vector_norm norm "
    "_safe_softmax native_layer_norm native_group_norm _fused_rms_norm mm bmm addmm baddbmm dot mv "
    "silu_backward sigmoid_backward softplus_backward elu_backward".split()
)
_FLOAT_STEPS = frozenset(
    "floor ceil round trunc floor_divide sign sgn heaviside mode histc bernoulli rand rand_like "
    "randn randn_like native_dropout".split()
)

Function = Callable[..., Any]
Steps = tuple[Any, ...]
"""The results of the steps of an evaluation, in their order."""


def rounding_noise(
    function: Function,
    inputs: Sequence[Tensor],
    exact: Sequence[Tensor],
    moves: Moves,
    count: int,
    *,
    alone: bool,
) -> list[Sequence[Tensor]]:
    """Samples of the error that rounding gives each output. `exact` has the unrounded outputs.

    `count` samples are at moved inputs. One more sample shows the rounding of float64. With `alone`,
    where every element is a separate row, `rounding_errors` come last.
    """
    steps = steps_of(function, inputs)
    found: list[Sequence[Tensor]] = []
    for number in range(count + 1):
        own = number == count
        moved = inputs if own else perturbed(inputs, number, moves)
        unit = OWN_UNIT if own else moves.unit
        sample = randomly_rounded(function, moved, steps, number, unit)
        if sample is None:
            return found
        found.append([difference(one, to.double()) for one, to in zip(sample, exact, strict=True)])
    each = rounding_errors(function, inputs, exact, steps, moves.unit) if alone else None
    return found if each is None else [*found, each]


def steps_of(function: Function, inputs: Sequence[Tensor]) -> Steps:
    """The results of the steps that `function(*inputs)` takes without rounding."""
    with _Rounding(0, 0.0, only=-1) as mode:
        function(*inputs)
    return tuple(mode.taken)


def randomly_rounded(
    function: Function, inputs: Sequence[Tensor], steps: Steps, seed: int, unit: float = EPS32
) -> tuple[Tensor, ...] | None:
    """The outputs of `function(*inputs)`, with every rounding operation moved by half of `unit`.

    `steps` keep their results. An operation whose form in kernels cancels is computed in that form.
    Returns None if the function takes other steps than those.
    """
    with _Rounding(seed, unit, steps) as mode:
        result = evaluate(function, inputs)
    return None if mode.lost else result


def rounding_errors(
    function: Function,
    inputs: Sequence[Tensor],
    exact: Sequence[Tensor],
    steps: Steps,
    unit: float = EPS32,
) -> list[Tensor] | None:
    """The error of every element of `function(*inputs)` from its rounding operations.

    Each operation in turn moves by half of `unit`, and the effects add up as a root of squares. In a
    few random samples the effects on one of many elements may cancel each time. Returns None if the
    function takes other steps, or has more than MOST_OPERATIONS roundings.
    """
    squares = [torch.zeros_like(one, dtype=torch.float64) for one in exact]
    for number in range(MOST_OPERATIONS):
        with _Rounding(0, unit, steps, only=number) as mode:
            moved = evaluate(function, inputs)
        if mode.lost:
            return None
        for square, one, other in zip(squares, exact, moved, strict=True):
            square += (other.double() - one.double()).nan_to_num(0.0, 0.0, 0.0).square()
        if mode.count <= number + 1:
            return [square.sqrt() for square in squares]
    return None


class _Rounding(Mode):
    """Moves the result of every rounding operation, or of the one with the number `only`.

    It gives every step its result in `steps`. Without them it keeps the results in `taken`.
    """

    def __init__(
        self, seed: int, unit: float, steps: Steps | None = None, only: int | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.taken: list[Any] = []
        self.lost = False
        self.count = 0
        self._steps: Iterator[Any] | None = None if steps is None else iter(steps)
        self._seed, self._unit, self._only = seed, unit, only
        self._generators: dict[torch.device, torch.Generator] = {}
        # Floats made of whole numbers alone, such as positions, which fp32 computes exactly.
        self._exact: Any = WeakTensorKeyDictionary()

    def operation(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        name = str(function).removeprefix("aten.").partition(".")[0].removesuffix("_")
        given = tree_leaves((args, kwargs))
        exact = all(leaf in self._exact for leaf in given if _is_floating(leaf))
        in_place = function._schema.is_mutable
        usual = USUAL_FORMS.get(name)
        if usual is not None and not exact and "out" not in kwargs:
            with self:
                result = usual(*args, **kwargs)
                return args[0].copy_(result) if in_place else result
        result = function(*args, **kwargs)
        if in_place and not exact:
            # The result may be a part of another tensor.
            self._exact.clear()
        jumps, rounds = name in _FLOAT_STEPS, name in _ROUNDING
        if jumps or any(map(_is_floating, given)):
            result = tree_map(lambda leaf: self._kept(leaf, jumps, in_place), result)
        for leaf in filter(_is_floating, tree_leaves(result)):
            if exact and (not (rounds or jumps) or _is_whole(leaf)):
                self._exact[leaf] = True
            elif rounds:
                if self._only in (None, self.count):
                    leaf.mul_(self._factor(leaf))
                self.count += 1
        return result

    def _kept(self, leaf: Any, jumps: bool, in_place: bool) -> Any:
        """A leaf of an operation's result, as it is without rounding if it is that of a step."""
        if not jumps and _is_floating(leaf):
            return leaf
        tensor = isinstance(leaf, Tensor)
        if self._steps is None:
            self.taken.append(leaf.clone() if tensor else leaf)
            return leaf
        kept = next(self._steps, None)
        if not tensor:
            return leaf if kept is None else kept
        if not isinstance(kept, Tensor) or kept.shape != leaf.shape or kept.dtype != leaf.dtype:
            self.lost = True
            return leaf
        return leaf.copy_(kept) if in_place else kept.clone()

    def _factor(self, tensor: Tensor) -> Tensor:
        generator = self._generators.get(tensor.device)
        if generator is None:
            generator = torch.Generator(device=tensor.device).manual_seed(self._seed)
            self._generators[tensor.device] = generator
        up = torch.randint(
            0, 2, tensor.shape, generator=generator, device=tensor.device, dtype=torch.int8
        )
        return up.double().mul_(self._unit).add_(1.0 - self._unit / 2)


def _is_whole(tensor: Tensor) -> bool:
    """Whether fp32 holds every element, as whole numbers below 2^24."""
    return bool(((tensor == tensor.round()) & (tensor.abs() < 2**24)).all())


def _is_floating(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()
