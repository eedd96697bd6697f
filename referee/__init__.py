"""The referee: judges Triton kernels that nobody has to trust.

    from referee import judge
    verdict = judge(source, "softmax")

`Referee` keeps its workers warm between verdicts, `TaskName` names a reference of your own. Importing this package loads neither
torch nor triton.

The stages of a verdict are folders, in the order in which a candidate meets them: `reading`, `tracing`, `plans`, `compiling`, then
`interpreter` or `replaying`, `answers`, `measuring`. `ops` says what is asked for, `sandbox` holds what a candidate runs in,
`device` the process that owns the GPU, `selftest` the kernels that the referee itself is tested with. What stands beside this file
puts them together: `judge.py` first, `on_gpu.py` and `on_cpu.py` for the two ways, `gate.py`, `grid.py` and `duel.py` for more than
one verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from referee.device.jobs import TaskName
    from referee.judge import Referee, judge
    from referee.verdict import Verdict

__all__ = ["Referee", "TaskName", "Verdict", "judge"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    homes = {"TaskName": "referee.device.jobs", "Verdict": "referee.verdict"}
    return getattr(import_module(homes.get(name, "referee.judge")), name)
