"""No op of the catalogue accepts zeros, a constant, its input or a slightly wrong formula."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
import torch
from torch import Tensor

from referee.answers.compare import compare
from referee.answers.tolerance import Expected, expectations
from referee.ops import Cell, Op, TensorSpec, catalogue, get
from referee.ops.grammar import ACTIVATIONS
from referee.ops.mutation_check import MutationReport, Tensors, check_cell, check_task
from referee.ops.task import Task, load
from referee.ops.values import draw
from referee.verdict import CellResult
from tests.referee.ops.wrong_formulas import NEIGHBOURS, wrong_formulas
from tests.sampling import operations

# A `_short` op has the formula and the small cells of its base op, so nothing new could be learnt
# from it here.
NAMES = (
    *(
        op.name
        for op in operations(start=1, among=[op for op in catalogue() if op.regime != "short"])
    ),
    "rmsnorm_gelu_tanh",
    "add_layernorm_square_sigmoid",
)
WITHOUT_THE_INPUT = frozenset({"zeros", "a constant"})
# (op, scale) where right answers lie within fp32's own error of a constant: the divergence of two
# nearly uniform rows, the entropy of a nearly uniform row (log N) and of a row with one dominant
# value (0).
UNRESOLVED: set[tuple[str, object]] = {
    ("kl_div", 2.0**-10),
    *(("entropy", scale) for scale in (2.0**-10, 2.0**-6, 64.0, 1024.0)),
}
# In bfloat16 the divergences of two long sorted rows from another two are as good as the same.
UNRESOLVED |= {("kl_div", "bf16-2x5120-sorted-x1")}
# Two million off, fp32 tells divergences below about one from nothing else, and bfloat16 few
# numbers apart; there NaN is to be seen.
UNRESOLVED |= {("kl_div", f"{dtype}-2x1000-farther-x8192") for dtype in ("f32", "bf16")} | {
    ("entropy", "bf16-2x1000-farther-x8192")
}
# Ten million off, fp32 tells logits below about one from nothing else.
UNRESOLVED |= {
    (name, f"{dtype}-2x1000-farther-x8192")
    for name in ("softmax", "softmax_scale")
    for dtype in ("f32", "bf16")
}
# An activation that adds to its input, or takes from one, is allowed fp32's error of that; tiny
# inputs show NaN and factors.
ABSORBED = frozenset({"gelu", "gelu_erf", "gelu_tanh", "tanh", "elu", "selu", "mish", "geglu"})


def proof_of(name: str) -> MutationReport:
    known: dict[object, tuple[Expected, ...]] = {}

    def once(task: Task, cell: Cell, inputs: Sequence[Tensor]) -> tuple[Expected, ...]:
        # All wrong_answers are compared for the same inputs, some pieces of rows after others.
        piece = cell.name, inputs[0].data_ptr(), inputs[0].shape
        if piece not in known:
            known[piece] = expectations(task, cell, inputs)
        return known[piece]

    task = load(name, "cpu")
    brief = partial(compare, briefly=True, expected_of=once)
    return check_task(task, brief, seed=31, formulas=wrong_formulas(task.op))


def can_tell(name: str, cell: Cell) -> bool:
    """One column normalises to +-1 and sums to itself: there a constant or the input can be the
    right answer.
    """
    if "-tiny-" in cell.name and any(name.endswith(act) for act in ABSORBED):
        return False
    return (
        cell.inputs[0].shape[-1] > 1
        and not {(name, cell.scales[0]), (name, cell.name)} & UNRESOLVED
    )


def test_the_comparator_passes_eager_itself() -> None:
    for name in NAMES:
        task = load(name, "cpu")
        for cell in task.required:
            inputs = draw(cell, 31)
            result = compare(task, cell, inputs, (task.eager(*inputs),))
            assert result.status == "pass", (name, cell.name, result.detail)


@pytest.mark.sweep
@pytest.mark.parametrize("name", NAMES)
def test_every_impostor_is_caught_where_a_cell_can_tell(
    name: str,
) -> None:
    proof = proof_of(name)
    assert proof.accepted == (), proof.summary()
    assert {finding.wrong_answer for finding in proof.findings} >= WITHOUT_THE_INPUT
    telling = {cell.name for cell in load(name, "cpu").required if can_tell(name, cell)}
    assert len(telling) >= 2
    passed = [
        finding
        for finding in proof.findings
        if not finding.caught
        and finding.cell in telling
        and (
            finding.wrong_answer in WITHOUT_THE_INPUT
            or finding.wrong_answer.startswith("the input")
        )
    ]
    assert passed == []


def test_every_op_has_at_least_two_near_misses_of_its_own() -> None:
    for op in catalogue():
        assert len(wrong_formulas(op)) >= 2, op.name


def test_every_activation_has_another_one_as_neighbour() -> None:
    assert set(NEIGHBOURS) == set(ACTIVATIONS)
    assert all(other in ACTIVATIONS and other != act for act, other in NEIGHBOURS.items())


def test_a_vacuous_task_is_named_for_what_it_accepts() -> None:
    spec = TensorSpec("x", (4, 8), "float32", (8, 1))
    cell = Cell("small", (spec,), (spec,), "normal", (1.0,), "required")
    op = Op(
        "damped", "function", "user", "damped", "x/1e9", "hard", origin="user", arguments=("x",)
    )
    task = Task(op, (cell,), lambda x: x * 1e-9, lambda x: x.double() * 1e-9)

    def loose(task: Task, cell: Cell, inputs: Tensors, outputs: Tensors) -> CellResult:
        close = torch.allclose(outputs[0].double(), task.oracle(*inputs), rtol=1e-2, atol=1e-3)
        return CellResult(cell.name, cell.role, "pass" if close else "fail")

    proof = check_task(task, loose, seed=1)
    assert "zeros" in proof.accepted
    assert "the input x" not in proof.accepted
    assert proof.summary().startswith("this task accepts zeros")


def test_an_wrong_answer_equal_to_the_right_answer_says_nothing() -> None:
    task = load("softmax", "cpu")
    column = next(cell for cell in task.required if cell.inputs[0].shape[1] == 1)
    names = {
        name for name, finding in check_cell(task, column, draw(column, 1), compare) if finding
    }
    assert "a constant" not in names
    assert "zeros" in names


def test_empty_cells_are_left_out_of_a_proof() -> None:
    proof = check_task(load("softmax", "cpu"), compare, seed=1)
    assert not any("-0x" in finding.cell for finding in proof.findings)
    assert wrong_formulas(Op("mine", "function", "user", "", "", "hard", origin="user")) == {}
    assert get("softmax").origin == "catalogue"
