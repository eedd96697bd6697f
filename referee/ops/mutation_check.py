"""A mutation check of a task's test cases: known wrong answers must fail the judge's comparator.

The wrong answers are zeros, a constant, an input passed through, an answer 1 % too large, and a
missing last column or row. Others are computed from half-precision inputs, or with formulas of the
caller. A user's reference also gets missing first and middle columns, only
the largest column, and ignored inputs, signs or numbers. Its last wrong answers are computed from inputs on
the other side of a threshold.

If there are several outputs, one at a time is wrong. A wrong answer that equals the right one at a
cell (the softmax of one column is 1) is skipped there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from inspect import unwrap
from math import prod
from types import MappingProxyType

import torch
from torch import Tensor

from referee.ops.spec import Cell
from referee.ops.task import Task
from referee.ops.thresholds import other_way, thresholds_of
from referee.ops.torch_compat import as_tuple, computable, equal
from referee.verdict import CellResult

Tensors = tuple[Tensor, ...]
IN_OUTPUT = " in output "
"""In the name of a wrong answer, between the fault and the number of the wrong output."""
MOST_THRESHOLDS = 4
Formulas = Mapping[str, Callable[..., Tensor]]
"""Wrong formulas by name."""
NO_FORMULAS: Formulas = MappingProxyType({})
Comparator = Callable[[Task, Cell, Tensors, Tensors], CellResult]


@dataclass(frozen=True)
class Finding:
    """The comparator's result for one wrong answer at one cell. `caught` is False if it passed."""

    wrong_answer: str
    cell: str
    caught: bool
    detail: str = ""


@dataclass(frozen=True)
class MutationReport:
    """All findings of a task. No required cell caught the answers in `accepted`.

    `never_wrong` has those that equalled the right answer at every cell.
    """

    findings: tuple[Finding, ...]
    never_wrong: tuple[str, ...] = ()

    @property
    def accepted(self) -> tuple[str, ...]:
        """Wrong answers that passed at every cell at which they differ from the right answer."""
        caught = {finding.wrong_answer for finding in self.findings if finding.caught}
        tried = dict.fromkeys(finding.wrong_answer for finding in self.findings)
        return tuple(name for name in tried if name not in caught)

    def summary(self) -> str:
        """One line for a verdict: the wrong answers that this task accepts."""
        return (
            f"this task accepts {', '.join(self.accepted)}"
            if self.accepted
            else "every wrong answer was caught"
        )


def _passed_through(tensor: Tensor, expected: Tensor) -> Tensor | None:
    if tensor.shape == expected.shape:
        return tensor.to(expected.dtype, copy=True, memory_format=torch.contiguous_format)
    if tensor.dim() == 2 and tensor.shape[:1] == expected.shape:
        return tensor[:, 0].to(expected.dtype, copy=True)
    return None


def wrong_answers(
    task: Task, inputs: Tensors, formulas: Formulas = NO_FORMULAS
) -> Iterator[tuple[str, Tensors]]:
    """Named wrong answers for these inputs, with the right shapes and dtypes."""
    right = as_tuple(task.eager(*inputs))
    for name, wrong in _wrong(task, inputs, right, formulas):
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


def _wrong(
    task: Task, inputs: Tensors, right: Tensors, formulas: Formulas
) -> Iterator[tuple[str, Tensors]]:
    """Named answers in which every output is wrong, if it can be."""
    yield "zeros", tuple(torch.zeros_like(out) for out in right)
    if any(out.numel() > 1 for out in right):
        yield (
            "a constant",
            tuple(out.double().mean().to(out.dtype).repeat(out.shape) for out in right),
        )
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
        yield "inputs rounded to bfloat16", as_tuple(task.eager(*_halved_inputs(inputs)))
    if task.op.is_function:
        yield from _columns_missing(right)
        yield from _inputs_unheeded(task, inputs)
        yield from _on_the_other_side(task, inputs)
    for name, wrong in formulas.items():
        yield name, as_tuple(wrong(*inputs))


def _columns_missing(right: Tensors) -> Iterator[tuple[str, Tensors]]:
    """Answers without a column of small weight, or with only the heaviest column.

    The last column is tried for every operation.
    """
    kept: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "the first column missing": lambda columns, _: columns != 0,
        "the middle column missing": lambda columns, _: columns != len(columns) // 2,
        "every column missing but the largest": lambda columns, out: (
            columns == int(out.double().abs().flatten(0, -2).amax(0).argmax())
        ),
    }
    for name, of in kept.items():
        wrong = tuple(
            torch.where(
                of(torch.arange(out.shape[-1], device=out.device), out), out, torch.zeros_like(out)
            )
            if _wide(out)
            else out
            for out in right
        )
        # A missing column of zeros makes no difference.
        if not all(map(equal, wrong, right)):
            yield name, wrong


def _wide(out: Tensor) -> bool:
    return out.dim() > 1 and out.shape[-1] > 1 and out.numel() > 0


def _on_the_other_side(task: Task, inputs: Tensors) -> Iterator[tuple[str, Tensors]]:
    # A cached reference would not see a changed comparison.
    reference = unwrap(task.eager)
    for threshold in thresholds_of(reference, inputs)[:MOST_THRESHOLDS]:
        name = f"{task.cells[0].inputs[threshold.position].name} = {threshold.number:g} on the other side"
        yield name, other_way(reference, inputs, threshold)


def _inputs_unheeded(task: Task, inputs: Tensors) -> Iterator[tuple[str, Tensors]]:
    for position, (spec, tensor) in enumerate(zip(task.cells[0].inputs, inputs, strict=True)):
        if not tensor.numel():
            continue
        usual = (
            tensor.double().mean() if tensor.is_floating_point() else tensor.flatten()[0]
        ).item()
        if tensor.numel() == 1:
            # The mean of one element is that element; the next number towards zero fits into every
            # dtype.
            usual += -1 if usual > 0 else 1
        wrong = {f"any {spec.name}": torch.full_like(tensor, usual)}
        wide = computable(tensor)
        if tensor.dtype != torch.bool and bool((wide < 0).any()):
            wrong[f"{spec.name} of the wrong sign"] = wide.abs().to(tensor.dtype)
        for name, other in wrong.items():
            try:
                yield name, as_tuple(task.eager(*inputs[:position], other, *inputs[position + 1 :]))
            except Exception:
                # The reference does not take such values, so no answer is right.
                continue


def _numbers_unheeded(task: Task, cell: Cell) -> Formulas:
    """Formulas with one number at its usual value, for a cell at which it has another one."""
    usual = {scalar.name: scalar for scalar in task.scalars}
    return {
        f"any {scalar.name}": task.bind(
            tuple(usual[one.name] if one is scalar else one for one in cell.scalars)
        )[0]
        for scalar in cell.scalars
        if task.bind is not None and scalar != usual.get(scalar.name, scalar)
    }


def _says_nothing(task: Task, inputs: Tensors, outputs: Tensors) -> bool:
    expected = as_tuple(task.oracle(*inputs))
    right = as_tuple(task.eager(*inputs))
    return all(
        equal(out, want.to(out.dtype)) or equal(out, own)
        for out, want, own in zip(outputs, expected, right, strict=True)
    )


def check_cell(
    task: Task,
    cell: Cell,
    inputs: Tensors,
    compare: Comparator,
    *,
    formulas: Formulas = NO_FORMULAS,
    but: Set[str] = frozenset(),
) -> Iterator[tuple[str, Finding | None]]:
    """The finding for every wrong answer at one cell, except those in `but`.

    The finding is None if the answer is right there.
    """
    for name, outputs in wrong_answers(task, inputs, formulas):
        if name in but:
            continue
        if _says_nothing(task, inputs, outputs):
            yield name, None
        else:
            result = compare(task, cell, inputs, outputs)
            yield name, Finding(name, cell.name, result.status == "fail", result.detail)


def check_task(
    task: Task,
    compare: Comparator,
    *,
    seed: int,
    device: str = "cpu",
    once: bool = False,
    formulas: Formulas = NO_FORMULAS,
) -> MutationReport:
    """Run every wrong answer at every required, non-empty cell of the task.

    With `once`, an answer that was caught is not tried again.
    """
    findings: list[Finding] = []
    met: dict[str, None] = {}
    for cell in task.required:
        if any(prod(spec.shape) for spec in cell.outputs):
            caught = {finding.wrong_answer for finding in findings if once and finding.caught}
            inputs = task.inputs(cell, seed, device)
            all_formulas = {**formulas, **_numbers_unheeded(task, cell)}
            for name, finding in check_cell(
                task.at(cell), cell, inputs, compare, formulas=all_formulas, but=caught
            ):
                met[name] = None
                findings += [finding] if finding else []
    heard = {finding.wrong_answer for finding in findings}
    return MutationReport(tuple(findings), tuple(name for name in met if name not in heard))
