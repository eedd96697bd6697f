"""In which ways `run` is called in a trace: as it is used, as in training, and in every mixture of what a file asks about.

Every one of them must come to the same plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from referee.ops.spec import TensorSpec
from referee.tracing import given
from referee.tracing.training import OTHERWISE, USUAL, Mixture, Training

MAX_MIXED_QUESTIONS = 2

_DEPENDS = "launches depend on shapes, dtypes and the device only"


@dataclass(frozen=True)
class Way:
    """One way to call `run`: what torch answers, of what kinds the inputs are, which are the same tensor, if any, and how many of the
    last ones are given by name.
    """

    on: Mixture
    kinds: tuple[given.Kind, ...]
    same: given.Same | None = None
    named: int = 0

    def told(self) -> str:
        """What is unlike the usual call, in words."""
        found = []
        if any(kind.gradients for kind in self.kinds):
            found.append("inputs that require gradients")
        elif any(kind.parameter for kind in self.kinds):
            found.append("inputs that are parameters")
        if self.on:
            found.append("autocast, torch.compile and another default dtype" if self.on == OTHERWISE else "torch in another state")
        if self.same is not None:
            found.append("one tensor given twice")
        if self.named:
            found.append("arguments given by name")
        return ", ".join(found) or "nothing changed"

    def differs(self) -> str:
        """Why a file falls whose plan is another in this way."""
        if self.named or self.same is not None:
            return f"`run` does something else with {self.told()}; {_DEPENDS}"
        other = f"the second call of `run`, with {self.told()}, does something else than the first"
        return f"{other}: {_DEPENDS}, and nothing is kept between calls"


def ways(training: Training, inputs: tuple[TensorSpec, ...], tells_kinds: bool) -> Iterator[Way]:
    """Everything in training; and, where the file asks, every mixture of what it asks about, and of what the inputs may be
    of which it asks."""
    yield Way(USUAL, given.plain(inputs))
    yield Way(OTHERWISE, given.parameters(inputs))
    mixtures = training.mixtures()
    if training.asked or training.asked_kinds:
        yield from (Way(*some) for some in product(mixtures, (given.plain(inputs), given.parameters(inputs))))
    # Where nobody is told when the file asks, it may ask of every input.
    of = range(len(inputs)) if tells_kinds else sorted(training.asked_kinds)
    if of:
        # Of many questions, all and none, for the mixtures would be too many.
        some_mixtures = mixtures if len(training.asked) <= MAX_MIXED_QUESTIONS else (mixtures[0], mixtures[-1])
        yield from (Way(*some) for some in product(some_mixtures, given.mixtures(len(inputs), of)))
