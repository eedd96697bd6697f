"""The runs of one test case in Triton's interpreter, comparisons of their bits, and keys to share
them.

The smith often writes one kernel in several ways. The interpreter runs it once, and the result
holds for all of them: equal keys mean equal plans and kernels of equal structure. Every draft is
still screened, traced and compiled.

Limits: only passing runs are shared, because the words of a failure name the kernel's arguments.
Kernels with atomics, several configurations or booleans have no key; a store converts to booleans
differently from a cast.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from referee.interpreter.interpret import Execution
from referee.ops.spec import Cell
from referee.plans.plan import Launch, LaunchPlan, Step, views_of
from referee.reading.kernels import KernelModule
from referee.reading.structure import structures
from referee.verdict import CellResult

if TYPE_CHECKING:
    from torch import Tensor

WAYS = {
    True: " with products added unrounded and sums in another order",
    False: " with every product rounded and sums in order",
}
"""Description of the run in the other numeric mode, by `relaxed`."""

TIMEOUT = "timeout"
"""The guard of a case that was not judged because time ran out."""


@dataclass(frozen=True)
class CaseRun:
    """One run of a case. `when` describes it, `repeats` demands the bits of the first run, and
    `rehearsed` marks an autotuner's first call.
    """

    execution: Execution
    when: str = ""
    repeats: bool = False
    rehearsed: bool = False


class RunKeys:
    """The keys of one candidate's plans."""

    def __init__(self, module: KernelModule) -> None:
        self._module = module

    @cached_property
    def _structures(self) -> dict[str, Hashable]:
        return structures(self._module.text)

    def key(self, plan: LaunchPlan) -> Hashable | None:
        """The key of a plan, or None if its runs cannot be shared."""
        steps = [self._step(step) for step in plan.steps]
        if None in steps or any(
            view.dtype == "bool" for step in plan.steps for view in views_of(step)
        ):
            return None
        return repr(replace(plan, steps=())), tuple(steps)

    def _step(self, step: Step) -> Hashable | None:
        if not isinstance(step, Launch):
            return repr(step)
        if len(step.configs) != 1 or step.tuning is not None:
            return None
        # The interpreter ignores warps and stages.
        (config,) = step.configs
        signature = self._module.signature(step.kernel)
        if signature is None or signature.atomic:
            return None
        given = {
            argument.name: (argument.constexpr, repr(argument.value))
            for argument in config.arguments
        }
        return (
            self._structures[step.kernel],
            config.grid,
            tuple(given.get(one.name) for one in signature.parameters),
        )


def same_bits(left: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    """Whether two runs gave the same bits, except for the sign of zeros.

    The interpreter's minimum of -0 and +0 may be either, depending on numpy's vectorisation.
    """
    import torch

    return all(torch.equal(_bytes(a), _bytes(b)) for a, b in zip(left, right, strict=True))


def _bytes(tensor: Tensor) -> Tensor:
    import torch

    if tensor.is_floating_point() and tensor.element_size() > 1:
        tensor = tensor + 0.0
    return tensor.reshape(-1).contiguous().view(torch.uint8)


def out_of_time(cell: Cell, reason: str) -> CellResult:
    """The result of a case that was not judged because time ran out."""
    return CellResult(
        cell.name, cell.role, "skipped", detail=f"time ran out: {reason}", guard=TIMEOUT
    )
