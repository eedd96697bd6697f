"""Whether a kernel's answers depend on lanes that a load hides without saying what they get.

`tl.load` with a mask and without `other`, or with a boundary check and without padding, leaves such lanes undefined, says Triton's
documentation. Its compilers set them to zero, so a kernel that counts on that gives right answers: this is told, and is no rejection.
The smallest cell of each of a few widths runs once more in the interpreter, where such lanes are NaN. Limits: other widths are not looked
at, and of what takes the interpreter too long nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from referee.interpreter.calls import leaves_lanes_open
from referee.interpreter.interpret import UNDECIDED, Execution, execute
from referee.ops.spec import Cell
from referee.plans.plan import LaunchPlan
from referee.report import Report
from referee.verdict import Check, Rejection

if TYPE_CHECKING:
    from referee.cpu_path import CpuPath

CHECK = "open_lanes"
WORDS = "answers depend on lanes that a tl.load hides without `other`: undefined, says Triton, whose compilers set them to zero"
WIDTHS = 4


def has_open_lanes(text: str) -> bool:
    """Whether a load of the kernel module's may have such lanes."""
    return any(leaves_lanes_open(node) for node in ast.walk(ast.parse(text)))


def what_depends(path: CpuPath, traced: Sequence[tuple[Cell, LaunchPlan]]) -> Check:
    """Whether anything goes wrong when such lanes are NaN, what, and at which cell. Raises JobLost or InterpreterUnsupported."""
    from referee.answers.compare import compare

    smallest: dict[int, tuple[Cell, LaunchPlan]] = {}
    for cell, plan in sorted(traced, key=lambda one: (_fills(_width(one[0])), path.effort(*one))):
        smallest.setdefault(_width(cell), (cell, plan))
    chosen = list(smallest.values())[:WIDTHS]
    executions = [Execution(plan, path.task.inputs(cell, path.seed), config=path.configs[0], open_lanes=True) for cell, plan in chosen]
    answers = execute(path.workers, path.text, executions, seconds=path.seconds, unread=path.unread)
    for (cell, _), execution, answer in zip(chosen, executions, answers, strict=False):
        if isinstance(answer, Rejection):
            return Check(CHECK, "skipped", answer.reason) if answer.guard in UNDECIDED else _fails(cell, answer.reason)
        found = compare(path.task, cell, execution.inputs, answer.outputs)
        if found.status != "pass":
            return _fails(cell, found.detail)
    return Check(CHECK, "pass", f"some loads hide lanes without `other`; at {len(chosen)} cells no answer depends on what they get")


def note(report: Report, found: Check) -> None:
    """Tell it in the report of a kernel that has such lanes; it does not change the verdict."""
    report.add([found])
    if found.status == "fail":
        report.reserve(WORDS)


def _fails(cell: Cell, why: str) -> Check:
    return Check(CHECK, "fail", f"{WORDS} (at {cell.name}: {why}): give `other`")


def _width(cell: Cell) -> int:
    return max((spec.shape[-1] for spec in cell.inputs if spec.shape), default=0)


def _fills(width: int) -> bool:
    """Whether a row of it is likely to fill its block."""
    return width & (width - 1) == 0
