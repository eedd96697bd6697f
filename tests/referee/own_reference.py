"""References of a user's own, written to a file, and the cells at which an answer to one is
rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from referee.answers.compare import compare
from referee.answers.error_sizes import evaluate
from referee.ops.cells import Profile
from referee.ops.task import Task
from referee.reference.asked import Asked
from referee.reference.task import load_task

Answer = Callable[..., Tensor | tuple[Tensor, ...]]


def load_user(
    file: Path, function: str | None, profile: Profile, *inputs: str, fixed: tuple[str, ...] = ()
) -> Task:
    """The task of a reference file, with the texts of `--input` and `--fix`."""
    return load_task(Asked(str(file), function, inputs, fixed), profile)


def task(folder: Path, arguments: str, body: str, inputs: str) -> Task:
    """The task of a reference that returns `body`, with one example."""
    file = folder / "reference.py"
    file.write_text(
        f"import torch\nimport torch.nn.functional as F\ndef f({arguments}):\n    return {body}\nEXAMPLES = [({inputs},)]\n"
    )
    return load_user(file, "f", "cpu")


def rejecting(judged: Task, answer: Answer, seed: int) -> list[str]:
    """The cells at which the answer is wrong, without the example's name."""
    found = []
    for cell in judged.required:
        inputs = judged.inputs(cell, seed)
        outputs = evaluate(answer, [tensor.clone() for tensor in inputs])
        if (
            compare(judged, cell, inputs, tuple(out.contiguous() for out in outputs)).status
            != "pass"
        ):
            found.append(cell.name.removeprefix("example0-"))
    return found
