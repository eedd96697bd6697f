"""Evaluates a reference with every input or every step moved by one fp32 rounding, which no algorithm
can be expected to distinguish. For float64 outputs it is one float64 rounding.

`perturbed` moves inputs. `moved_beside_steps` evaluates a reference at moved inputs while
comparisons of an input itself keep their results. `age >= 65` is exact in every dtype, so rounding
does not excuse an answer of the other side; `x / scale >= 65` is not exact. Views, copies,
conversions, negations and absolute values of an input count as the input. Comparisons with computed
numbers, steps of such numbers, and choices among inputs (sort, argmax) see the moved values. So do
comparisons of tensors written in place.

`randomly_rounded` rounds intermediate results randomly, as fp32 rounds them. Source: Monte Carlo
arithmetic (D. Stott Parker, UCLA CSD-970002, 1997). Moved inputs do not show the rounding of
intermediates that cancel, such as `p * (g - sum(p * g))` in a gradient of softmax, or
`x - logsumexp(x)` for a likely class. Limits: a step of a computed number (comparison, floor,
argmax) may fall on either side, so a reference with such a step gives no sample. A comparison of
positions is no such step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from referee.answers.usual_forms import USUAL_FORMS
from referee.ops.torch_compat import Mode

EPS32, EPS64 = 2.0**-23, 2.0**-52
OWN_UNIT = 2.0 * EPS64
"""Relative step that shows the oracle's own error. Half of it still changes every float64."""


def unit_of(dtype: torch.dtype) -> float:
    """The relative step of the arithmetic that an output of this dtype asks for: fp32 but for
    float64.
    """
    return EPS64 if dtype == torch.float64 else EPS32


@dataclass(frozen=True)
class Moves:
    """The way in which inputs move: up or down, except for masks.

    Inputs of one shape move alike or against each other, by half of `unit`.
    """

    masks: tuple[Tensor, ...]
    centred: bool
    paired: bool
    unit: float = EPS32


def perturbed(inputs: Sequence[Tensor], number: int, moves: Moves) -> list[Tensor]:
    """The inputs, some moved down by one rounding.

    Samples come in pairs; the second moves the elements that the first left. With several pairs,
    inputs of one shape move alike in every second pair and against each other in the rest.
    Independent moves could cancel in all samples, as in x + r - mean(x + r) for a row that is not
    saturated.
    """
    moved = []
    pair, second = divmod(number, 2)
    shapes: list[torch.Size] = []
    for position, tensor in enumerate(inputs):
        if not tensor.is_floating_point():
            moved.append(tensor)
            continue
        before = shapes.count(tensor.shape) if moves.paired else 0
        turned = second ^ (before % 2 if pair % 2 == 0 else 0)
        seed = pair + 1_000_003 * (shapes.index(tensor.shape) if before else len(shapes))
        shapes.append(tensor.shape)
        generator = torch.Generator(device=tensor.device).manual_seed(seed)
        lowered = torch.randint(
            0, 2, tensor.shape, generator=generator, device=tensor.device, dtype=torch.int8
        ).bitwise_xor_(turned)
        up, down = moves.unit / 2 if moves.centred else 0.0, moves.unit / 2
        found = lowered.double().mul_(-up - down).add_(1.0 + up).mul_(tensor.double())
        moved.append(
            torch.where(moves.masks[position], tensor.double(), found) if moves.masks else found
        )
    return moved


MOST_OPERATIONS = 64

_ROUNDING = frozenset(
    "add sub rsub mul div reciprocal addcmul addcdiv lerp square pow sqrt rsqrt exp exp2 expm1 log log2 log10 "
    "log1p sin cos tan tanh sigmoid erf erfc silu gelu mish softplus elu log_sigmoid_forward logaddexp "
    "sum mean var var_mean std std_mean prod cumsum cumprod logsumexp logcumsumexp linalg_vector_norm norm "
    "_softmax _log_softmax _safe_softmax _softmax_backward_data _log_softmax_backward_data "
    "native_layer_norm native_group_norm _fused_rms_norm mm bmm addmm baddbmm dot mv "
    "silu_backward gelu_backward tanh_backward sigmoid_backward softplus_backward elu_backward".split()
)
_FLOAT_STEPS = frozenset(
    "floor ceil round trunc frac fmod remainder floor_divide sign sgn heaviside median kthvalue mode "
    "histc bernoulli rand rand_like randn randn_like native_dropout".split()
)


def randomly_rounded(
    function: Callable[..., Any], inputs: Sequence[Tensor], seed: int, unit: float = EPS32
) -> tuple[Tensor, ...] | None:
    """The outputs of `function(*inputs)`, with every rounding operation moved by half of `unit`.

    An operation whose form in kernels cancels is computed in that form. Returns None if the function
    takes a step of a floating number.
    """
    with _RandomRounding(seed, unit) as mode:
        result = function(*inputs)
    if mode.has_steps:
        return None
    return _outputs(result)


def rounding_errors(
    function: Callable[..., Any], inputs: Sequence[Tensor], unit: float = EPS32
) -> list[Tensor] | None:
    """The error of every element of `function(*inputs)` from its rounding operations.

    Each operation in turn moves by half of `unit`, and the effects add up as a root of squares. In a
    few random samples the effects on one of many elements may cancel each time. Returns None if the
    function takes a step of a floating number, or has more than MOST_OPERATIONS roundings.
    """
    exact = _outputs(function(*inputs))
    squares = [torch.zeros_like(one, dtype=torch.float64) for one in exact]
    for number in range(MOST_OPERATIONS):
        with _RandomRounding(0, unit, only=number) as mode:
            moved = _outputs(function(*inputs))
        if mode.has_steps:
            return None
        for square, one, other in zip(squares, exact, moved, strict=True):
            square += (other.double() - one.double()).nan_to_num(0.0, 0.0, 0.0).square()
        if mode.count <= number + 1:
            return [square.sqrt() for square in squares]
    return None


def _outputs(result: Any) -> tuple[Tensor, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


class _RandomRounding(Mode):
    """Moves the result of every rounding operation, or of the one with the number `only`."""

    def __init__(self, seed: int, unit: float, only: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.has_steps = False
        self.count = 0
        self._seed, self._unit, self._only = seed, unit, only
        self._generators: dict[torch.device, torch.Generator] = {}
        # Floats made of whole numbers alone, such as positions, which fp32 computes exactly.
        self._exact: Any = WeakTensorKeyDictionary()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = str(func).removeprefix("aten.").partition(".")[0]
        usual = USUAL_FORMS.get(name.removesuffix("_"))
        if usual is not None and "out" not in kwargs:
            with self:
                result = usual(*args, **kwargs)
                return args[0].copy_(result) if func._schema.is_mutable else result
        result = func(*args, **kwargs)
        given, made = tree_leaves((args, kwargs)), tree_leaves(result)
        exact = all(leaf in self._exact for leaf in given if _is_floating(leaf))
        if not exact and (name in _FLOAT_STEPS or not all(map(_is_floating, made))):
            # A result that is not floating comes from a step: a comparison, an index, a cast.
            self.has_steps = True
            return result
        if func._schema.is_mutable and not exact:
            # The result may be a part of another tensor.
            self._exact.clear()
        rounds = name.removesuffix("_") in _ROUNDING
        for leaf in filter(_is_floating, made):
            if exact and (not (rounds or name in _FLOAT_STEPS) or _is_whole(leaf)):
                self._exact[leaf] = True
            elif rounds:
                if self._only in (None, self.count):
                    leaf.mul_(self._factor(leaf))
                self.count += 1
        return result

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


_STEPS = frozenset(
    "eq ne lt le gt ge floor ceil round trunc sign sgn signbit heaviside bucketize".split()
)
_MOVES = frozenset(
    "alias detach clone contiguous _to_copy lift_fresh view _unsafe_view reshape expand permute transpose t squeeze unsqueeze select slice "
    "unbind split split_with_sizes diagonal as_strided unfold cat stack flip roll repeat gather index index_select neg abs".split()
)


def moved_beside_steps(
    function: Callable[..., Any], given: Sequence[Tensor], moved: Sequence[Tensor]
) -> Any:
    """`function(*moved)`, where each comparison of an input itself has its result for `given`."""
    with _Unmoved(given, moved):
        return function(*moved)


class _Unmoved(Mode):
    """For each tensor that is a moved input the given one; None for tensors computed from moved
    inputs.
    """

    def __init__(self, given: Sequence[Tensor], moved: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._given: Any = WeakTensorKeyDictionary()
        for own, other in zip(given, moved, strict=True):
            if other.is_floating_point():
                self._given[other] = own.to(other.dtype)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        known = [
            leaf
            for leaf in tree_leaves((args, kwargs))
            if isinstance(leaf, Tensor) and leaf in self._given
        ]
        if not known:
            return result
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        name = _name(func)
        if func._schema.is_mutable:
            self._forget(outputs)
        elif name not in _STEPS | _MOVES or any(self._given[tensor] is None for tensor in known):
            self._given.update(dict.fromkeys(outputs))
        else:
            own = func(*tree_map(self._own, args), **tree_map(self._own, kwargs))
            if name in _STEPS or not outputs[0].is_floating_point():
                return own
            self._given.update(zip(outputs, tree_leaves(own), strict=True))
        return result

    def _own(self, leaf: Any) -> Any:
        return self._given.get(leaf, leaf) if isinstance(leaf, Tensor) else leaf

    def _forget(self, written: Sequence[Tensor]) -> None:
        places = {_place(tensor) for tensor in written}
        for tensor in list(self._given.keys()):
            if _place(tensor) in places:
                self._given[tensor] = None
        for tensor in written:
            self._given[tensor] = None


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _name(func: Any) -> str:
    """The operation's name without overload, except for a rounding to decimals, which divides."""
    name, _, overload = str(func).removeprefix("aten.").partition(".")
    return name if overload != "decimals" else "decimals"
