"""The referee: judges Triton kernels that nobody has to trust.

    from referee import judge
    verdict = judge(source, "softmax")

`Referee` keeps its workers warm between verdicts, `TaskName` names a reference of your own. Importing this package loads neither
torch nor triton.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from referee.jobs import TaskName
    from referee.judge import Referee, judge
    from referee.verdict import Verdict

__all__ = ["Referee", "TaskName", "Verdict", "judge"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    homes = {"TaskName": "referee.jobs", "Verdict": "referee.verdict"}
    return getattr(import_module(homes.get(name, "referee.judge")), name)
