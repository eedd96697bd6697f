"""The first call of an autotuned candidate, as a plan: what Triton does when it compares configurations, on the caller's memory.

At its first call with a shape Triton runs every configuration several times before the launch that counts, zeroes what
`reset_to_zero` names before each and gives back what `restore_value` names after it. A kernel that adds to memory, or changes it
in place, and names it in neither gives a wrong answer at that call only. Timed and checked plans have one configuration frozen and
would never show it, so this plan is checked as well. Source of the order: Autotuner.run and Autotuner._bench of Triton 3.6 and 3.7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from referee.plans.dtypes import ITEMSIZE
from referee.plans.plan import Buffer, Copy, Fill, Launch, LaunchPlan, Step, View
from referee.verdict import Rejection

GUARD = "autotune"
_ADVICE = "name what the kernel adds to in autotune's reset_to_zero, what it changes in place in restore_value, or drop autotune"


@dataclass(frozen=True)
class Rehearsal:
    """The plan of a first call; `origin` tells for each of its launches the step and configuration of the plan it was made of."""

    plan: LaunchPlan
    origin: dict[int, tuple[int, int]]


def rehearsal(plan: LaunchPlan, usable: Mapping[int, Sequence[int]], choice: Mapping[int, int]) -> Rehearsal | None:
    """The first call of `plan`, or None when nothing in it is autotuned.

    `usable` lists the configurations of each launch that compiled, `choice` the one that is picked (the first where it says nothing).
    The first and the last one stand for all that are tried.
    """
    if not any(isinstance(step, Launch) and step.tuning is not None for step in plan.steps):
        return None
    made = _Making(plan)
    for number, step in enumerate(plan.steps):
        if not isinstance(step, Launch):
            made.steps.append(step)
            continue
        tried = usable[number]
        picked = choice[number] if choice.get(number) in tried else tried[0]
        if step.tuning is not None:
            for config in dict.fromkeys((tried[0], tried[-1], picked)):
                made.zero(step)
                made.keep(step)
                made.launch(number, step, config)
                made.give_back(step)
            made.zero(step)
        made.launch(number, step, picked)
    return Rehearsal(LaunchPlan(tuple(made.buffers), plan.inputs, tuple(made.steps), plan.outputs), made.origin)


def blamed(rejection: Rejection) -> Rejection:
    """The rejection of a rehearsed plan, in words of the first call; faults that are not of the answer stay what they are."""
    if rejection.guard not in ("wrong_answer", "not_deterministic"):
        return rejection
    reason = f"at the first call, where Triton tries every configuration on the same memory: {rejection.reason}; {_ADVICE}"
    return replace(rejection, stage="correct", guard=GUARD, reason=reason)


class _Making:
    def __init__(self, plan: LaunchPlan) -> None:
        self.buffers, self.steps = list(plan.buffers), list[Step]()
        self.origin: dict[int, tuple[int, int]] = {}
        self._copies: dict[View, View] = {}

    def launch(self, number: int, step: Launch, config: int) -> None:
        self.origin[len(self.steps)] = (number, config)
        self.steps.append(Launch(step.kernel, (step.configs[config],)))

    def zero(self, step: Launch) -> None:
        assert step.tuning is not None
        self.steps += [Fill(view, False if view.dtype == "bool" else 0) for view in step.tuning.zeroed]

    def keep(self, step: Launch) -> None:
        self.steps += [Copy(self._copy_of(view), view) for view in self._restored(step)]

    def give_back(self, step: Launch) -> None:
        self.steps += [Copy(view, self._copy_of(view)) for view in self._restored(step)]

    def _restored(self, step: Launch) -> list[View]:
        """What is not an input: an input that a kernel writes is seen at every call."""
        assert step.tuning is not None
        return [view for view in step.tuning.restored if self.buffers[view.buffer].input is None]

    def _copy_of(self, view: View) -> View:
        if view not in self._copies:
            strides = tuple(math.prod(view.shape[axis + 1 :]) for axis in range(len(view.shape)))
            self._copies[view] = View(len(self.buffers), 0, view.shape, strides, view.dtype)
            self.buffers.append(Buffer(math.prod(view.shape) * ITEMSIZE[view.dtype]))
        return self._copies[view]
