"""The cost of a small call of a saved function for the host, before the kernel.

Only kmint's own text runs here: the checks, the public function and the reference. The judged part,
which comes from a draft, is left out, so that the launch has no share in the figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from kmint_tui.save.first_call import arguments
from kmint_tui.save.reference_code import reference_function
from kmint_tui.save.support import Support
from kmint_tui.save.wrapper import checked_function, constants, imports
from referee.ops import Op

SIZE = 64
CALLS, REPEATS = 50, 40
"""Calls of one timing, and the number of timings. The shortest counts: other work only adds time."""


@dataclass(frozen=True)
class HostCost:
    """Microseconds of one call on the CPU with `inputs`, Python expressions.

    `checks_us` is the time of all but the answer, `one_by_one_us` the same without the quick form of
    the checks, `reference_us` the time of PyTorch's answer.
    """

    inputs: tuple[str, ...]
    checks_us: float
    one_by_one_us: float
    reference_us: float

    def to_json(self) -> dict[str, Any]:
        """For the receipt."""
        return {**asdict(self), "inputs": list(self.inputs)}


def host_cost(op: Op, name: str, able: Support) -> HostCost:
    """The cost of a call of 64 rows and columns, or of the least columns that the file takes."""
    text = "\n".join(
        [
            *imports("custom_op"),
            constants(able),
            reference_function(op),
            checked_function(op, name, "kmint", able),
        ]
    )
    module: dict[str, Any] = {"__name__": name}
    exec(compile(text, f"<{name}>", "exec", dont_inherit=True), module)
    inputs = arguments(op, able, gpu=False, rows=SIZE, columns=SIZE)
    given = tuple(eval(one, module) for one in inputs)
    reference = module["reference"]
    module["reference"] = lambda first, *_: first
    # The quick form is replaced in the module itself, where the public function looks for it.
    quick, public = module["_usual"], module[name]
    took = {"quick": float("inf"), "slow": float("inf"), "reference": float("inf")}
    for _ in range(REPEATS):
        for kind, call in (("quick", public), ("slow", public), ("reference", reference)):
            module["_usual"] = quick if kind == "quick" else lambda *_: False
            took[kind] = min(took[kind], _microseconds(call, given))
    return HostCost(
        tuple(inputs), *(round(took[kind], 2) for kind in ("quick", "slow", "reference"))
    )


def _microseconds(call: Callable[..., Any], given: tuple[Any, ...]) -> float:
    begun = time.perf_counter_ns()
    for _ in range(CALLS):
        call(*given)
    return (time.perf_counter_ns() - begun) / CALLS / 1e3
