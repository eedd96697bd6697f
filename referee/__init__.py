"""The referee: judges untrusted Triton kernels.

    from referee import judge
    verdict = judge(source, "softmax")

`Referee` keeps its workers warm between verdicts. `TaskName` names a reference of your own.
Importing this package loads neither torch nor triton.

`judge.py` starts a verdict. `stages` has its stages in order: screen, trace, compile, check, time.
Each returns the `candidate` with more facts. `checks` has single checks of a compiled candidate.
`gate.py`, `grid.py`, `variant_timing.py` and `head_to_head.py` use several verdicts or kernels.

The other folders follow the path of a candidate: `reading`, `tracing`, `plans`, `compiling`, then
`interpreter` or `replaying`, `answers`, `timing`. `ops` defines the operations and their test
cases, and `reference` those of users. `sandbox` confines candidates, `gpu` owns the GPU, and
`selftest` holds kernels with a known verdict. `concurrency` has the task scope and the cancel token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from referee.judge import Referee, judge
    from referee.problem import TaskName
    from referee.verdict import Verdict

__all__ = ["Referee", "TaskName", "Verdict", "judge"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    homes = {"TaskName": "referee.problem", "Verdict": "referee.verdict"}
    return getattr(import_module(homes.get(name, "referee.judge")), name)
