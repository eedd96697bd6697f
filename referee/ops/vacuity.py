"""Proof that a task's cells can tell right from wrong: impostors that must fail, run through the judge's own comparator.

Impostors: zeros, one constant, every input passed through, an answer 1 % too large, an answer whose last column or last
row is missing, an answer computed from half-precision inputs (fp32 cells), and the op's near misses (`near_miss.py`). For a user's
reference also an answer without its first or middle column, or with none but the largest, one that does not heed an input or its
sign, and one that has an input on the other side of a number that it is equal to. Of several outputs one at a time is wrong: each has
to be told apart on its own.
An impostor that equals the right answer on a cell (the softmax of one column is 1) says nothing there and is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from inspect import unwrap
from math import prod

import torch
from torch import Tensor

from referee.ops.near_miss import near_misses
from referee.ops.spec import Cell
from referee.ops.task import Task
from referee.ops.thresholds import other_way, thresholds_of
from referee.verdict import CellResult

Tensors = tuple[Tensor, ...]
IN_OUTPUT = " in output "
"""In the name of an impostor, between what is wrong and the number of the output that it is wrong in."""
MOST_THRESHOLDS = 4
Comparator = Callable[[Task, Cell, Tensors, Tensors], CellResult]


@dataclass(frozen=True)
class Finding:
    """What the comparator said of one impostor at one cell. `caught` is False when it passed as a right answer."""

    impostor: str
    cell: str
    caught: bool
    detail: str = ""


@dataclass(frozen=True)
class Vacuity:
    """All findings of a task. `accepted` names the impostors that no required cell caught: the task is vacuous for them.

    `unheard` are those that are the right answer wherever they were tried.
    """

    findings: tuple[Finding, ...]
    unheard: tuple[str, ...] = ()

    @property
    def accepted(self) -> tuple[str, ...]:
        """Impostors that passed at every cell at which they differ from the right answer."""
        caught = {finding.impostor for finding in self.findings if finding.caught}
        tried = dict.fromkeys(finding.impostor for finding in self.findings)
        return tuple(name for name in tried if name not in caught)

    def summary(self) -> str:
        """One line for a verdict: what this task would accept."""
        return f"this task accepts {', '.join(self.accepted)}" if self.accepted else "every impostor was caught"


def _tuple(result: Tensor | Tensors) -> Tensors:
    return result if isinstance(result, tuple) else (result,)


def _passed_through(tensor: Tensor, expected: Tensor) -> Tensor | None:
    if tensor.shape == expected.shape:
        return tensor.to(expected.dtype, copy=True, memory_format=torch.contiguous_format)
    if tensor.dim() == 2 and tensor.shape[:1] == expected.shape:
        return tensor[:, 0].to(expected.dtype, copy=True)
    return None


def impostors(task: Task, inputs: Tensors) -> Iterator[tuple[str, Tensors]]:
    """Named wrong answers for these inputs, in the right shapes and dtypes."""
    right = _tuple(task.eager(*inputs))
    for name, wrong in _wrong(task, inputs, right):
        if len(right) == 1:
            yield name, wrong
        else:
            for index, out in enumerate(wrong):
                if not out.numel():
                    continue
                yield f"{name}{IN_OUTPUT}{index}", (*right[:index], out, *right[index + 1 :])


def _without_last(expected: Tensor, dimension: int) -> Tensor:
    out = expected.clone()
    if out.dim() > (dimension == -1) and out.shape[dimension] > 1:
        out.select(dimension, -1).zero_()
    return out


def _halved_inputs(inputs: Tensors) -> Tensors:
    return tuple(t.bfloat16().float() if t.dtype == torch.float32 else t for t in inputs)


def _wrong(task: Task, inputs: Tensors, right: Tensors) -> Iterator[tuple[str, Tensors]]:
    """Named answers of which every output is wrong, where it can be in that way."""
    yield "zeros", tuple(torch.zeros_like(out) for out in right)
    if any(out.numel() > 1 for out in right):
        yield "a constant", tuple(torch.full_like(out, 1) * out.double().mean().to(out.dtype) for out in right)
    for spec, tensor in zip(task.cells[0].inputs, inputs, strict=True):
        passed = _passed_through(tensor, right[0])
        if passed is not None and len(right) == 1:
            yield f"the input {spec.name}", (passed,)
    if any(out.is_floating_point() for out in right):
        yield "1 % too large", tuple((out.float() * 1.01).to(out.dtype) for out in right)
    if any(out.dim() > 1 and out.shape[-1] > 1 for out in right):
        yield "the last column missing", tuple(_without_last(out, -1) for out in right)
    if any(out.dim() and out.shape[0] > 1 for out in right):
        yield "the last row missing", tuple(_without_last(out, 0) for out in right)
    if any(t.dtype == torch.float32 for t in inputs):
        yield "inputs rounded to bfloat16", _tuple(task.eager(*_halved_inputs(inputs)))
    if task.op.origin == "user":
        yield from _columns_missing(right)
        yield from _inputs_unheeded(task, inputs)
        yield from _on_the_other_side(task, inputs)
    for name, wrong in near_misses(task.op).items():
        yield name, (wrong(*inputs),)


def _columns_missing(right: Tensors) -> Iterator[tuple[str, Tensors]]:
    """One that counts for little beside the others, or all but the one that counts most; the last is tried of every op."""
    kept: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "the first column missing": lambda columns, _: columns != 0,
        "the middle column missing": lambda columns, _: columns != len(columns) // 2,
        "every column missing but the largest": lambda columns, out: columns == int(out.double().abs().flatten(0, -2).amax(0).argmax()),
    }
    for name, of in kept.items():
        wrong = tuple(
            torch.where(of(torch.arange(out.shape[-1], device=out.device), out), out, torch.zeros_like(out)) if _wide(out) else out
            for out in right
        )
        # A column that has only zeros is not missed.
        if not all(map(torch.equal, wrong, right)):
            yield name, wrong


def _wide(out: Tensor) -> bool:
    return out.dim() > 1 and out.shape[-1] > 1 and out.numel() > 0


def _on_the_other_side(task: Task, inputs: Tensors) -> Iterator[tuple[str, Tensors]]:
    # What remembers answers would not notice that comparisons turned.
    reference = unwrap(task.eager)
    for threshold in thresholds_of(reference, inputs)[:MOST_THRESHOLDS]:
        name = f"{task.cells[0].inputs[threshold.position].name} = {threshold.number:g} on the other side"
        yield name, other_way(reference, inputs, threshold)


def _inputs_unheeded(task: Task, inputs: Tensors) -> Iterator[tuple[str, Tensors]]:
    """What comes of not looking at one of the inputs, or not at its sign."""
    for position, (spec, tensor) in enumerate(zip(task.cells[0].inputs, inputs, strict=True)):
        if not tensor.numel():
            continue
        usual = (tensor.double().mean() if tensor.is_floating_point() else tensor.flatten()[0]).item()
        if tensor.numel() == 1:
            # Its mean is that number itself; what is next to it, towards zero, has room in every dtype.
            usual += -1 if usual > 0 else 1
        wrong = {f"any {spec.name}": torch.full_like(tensor, usual)}
        if tensor.dtype != torch.bool and bool((tensor < 0).any()):
            wrong[f"{spec.name} of the wrong sign"] = tensor.abs()
        for name, other in wrong.items():
            try:
                yield name, _tuple(task.eager(*inputs[:position], other, *inputs[position + 1 :]))
            except Exception:
                # The reference takes no such values, so that nobody asks for an answer to them.
                continue


def _says_nothing(task: Task, inputs: Tensors, outputs: Tensors) -> bool:
    """True when the outputs are the right answer after all, to the last bit of the output dtype."""
    expected = _tuple(task.oracle(*inputs))
    right = _tuple(task.eager(*inputs))
    return all(
        torch.equal(out, want.to(out.dtype)) or torch.equal(out, own) for out, want, own in zip(outputs, expected, right, strict=True)
    )


def examine(
    task: Task, cell: Cell, inputs: Tensors, compare: Comparator, *, but: Set[str] = frozenset()
) -> Iterator[tuple[str, Finding | None]]:
    """What comes of every impostor at one cell, `but` these: None of one that is the right answer there."""
    for name, outputs in impostors(task, inputs):
        if name in but:
            continue
        if _says_nothing(task, inputs, outputs):
            yield name, None
        else:
            result = compare(task, cell, inputs, outputs)
            yield name, Finding(name, cell.name, result.status == "fail", result.detail)


def prove(task: Task, compare: Comparator, *, seed: int, device: str = "cpu", once: bool = False) -> Vacuity:
    """Run every impostor at every required, non-empty cell of the task; with `once` at none after one that caught it."""
    findings: list[Finding] = []
    met: dict[str, None] = {}
    for cell in task.required:
        if any(prod(spec.shape) for spec in cell.outputs):
            caught = {finding.impostor for finding in findings if once and finding.caught}
            for name, finding in examine(task, cell, task.inputs(cell, seed, device), compare, but=caught):
                met[name] = None
                findings += [finding] if finding else []
    heard = {finding.impostor for finding in findings}
    return Vacuity(tuple(findings), tuple(name for name in met if name not in heard))
