"""Decides which numbers of a call stay arguments of `run`, and their judged values.

A number stays an argument if the reference calls the same operations on the same shapes at several
values. The answers must also change with the number. Other numbers choose a branch, a dimension or
a shape, so they are fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite

from torch import Tensor

from referee.ops.torch_compat import computable, equal
from referee.reference.inputs import Number
from referee.reference.observed import Observed

MOST_VALUES = 4
FACTORS = (1.5, 0.5, 3.0, 0.25, 1.0625, 10.0)
NEAR_ONE = (0.75, 0.5, 0.96875, 0.25)
OTHERS_OF_ZERO = (0.5, -0.25, 1.0, 2.0)
STEPS = (1, -1, 7, 12)

Answer = tuple[tuple[Tensor, ...], Observed]
Evaluate = Callable[[Number], Answer]
"""The float64 answers with this value for one number; raises the reference's exceptions."""


@dataclass(frozen=True)
class Judged:
    """The values of a number, the usual one first. `why` is the reason of a fixed number."""

    values: tuple[Number, ...]
    why: str = ""


def judged_values(usual: Number, evaluate: Evaluate, wanted: Sequence[Number] = ()) -> Judged:
    """The values at which a number can be judged; `wanted` are the user's further ones."""
    if not isfinite(usual):
        return Judged((usual,), "it is not finite")
    try:
        answers, seen = evaluate(usual)
    except Exception:
        # The evaluation of the example reports this failure better.
        return Judged((usual,), "the reference fails at it")
    if seen.random is not None:
        return Judged((usual,), "the reference draws random numbers")
    found: list[Number] = []
    changes = branches = False
    for value in wanted or _others(usual):
        try:
            other, did = evaluate(value)
        except Exception:
            continue
        branches = branches or did.calls != seen.calls
        if did.calls == seen.calls and all(
            bool(computable(one).isfinite().all()) for one in other if one.is_floating_point()
        ):
            changes = changes or not all(
                equal(one, two) for one, two in zip(answers, other, strict=True)
            )
            found.append(value)
    if not found or (branches and not changes):
        return Judged((usual,), "at other values the reference does something else")
    if not changes:
        return Judged((usual,), "the answers do not depend on it")
    return Judged((usual, *islice(found, MOST_VALUES - 1)))


def _others(usual: Number) -> Iterable[Number]:
    if isinstance(usual, int):
        return [usual + step for step in STEPS if usual <= 0 or usual + step > 0]
    if usual == 0.0:
        return OTHERS_OF_ZERO
    if 0.5 < usual < 1.0:
        # Decay rates and probabilities.
        return [value for value in NEAR_ONE if value != usual]
    return [usual * factor for factor in FACTORS]
