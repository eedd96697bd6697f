"""What a task that a user brought would accept besides the right answer."""

from __future__ import annotations

from referee.compare import compare
from referee.ops.task import Task
from referee.ops.vacuity import impostors, prove
from referee.ops.values import draw


def accepted_impostors(task: Task, seed: int) -> tuple[str, ...]:
    """Names of the impostors that pass at every required cell, or are the right answer there: zeros for a reference of zeros."""
    found = prove(task, compare, seed=seed)
    tried = {finding.impostor for finding in found.findings}
    offered = {name: None for cell in task.required for name, _ in impostors(task, draw(cell, seed))}
    return (*found.accepted, *(name for name in offered if name not in tried))
