"""References that a user brings become tasks, or fail with one clear line."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
import torch

from referee.ops.catalogue import UnknownOp, get
from referee.ops.task import Task
from referee.ops.values import draw
from referee.reference.asked import split_reference
from referee.reference.unusable import UnusableReference
from tests.referee.own_reference import load_user

FUNCTION = """
import torch

def scaled_add(a, b, alpha=2.0):
    '''a plus alpha times b, rows softmaxed'''
    return torch.softmax((a.float() + alpha * b.float()), -1, dtype=torch.float32).to(a.dtype)

def get_inputs():
    return [torch.randn(6, 32, dtype=torch.bfloat16), torch.rand(6, 32, dtype=torch.bfloat16) * 4]
"""

MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, 5)
        self.norm = torch.nn.BatchNorm1d(5)

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x)))

def get_inputs():
    return [torch.randn(7, 3)]

def get_init_inputs():
    return [3]
"""

PICKING = """
import torch

def pick(table, index, mask, offset):
    chosen = table[index] + offset
    return torch.where(mask, chosen, 0), index * 2

EXAMPLES = [
    (torch.randn(40), torch.randint(5, 30, (8,), dtype=torch.int32), torch.tensor([True, False] * 4), 1.5),
    (torch.randn(40), torch.randint(5, 30, (16,), dtype=torch.int32), torch.tensor([True, False] * 8), 1.5),
]
"""


def write(folder: Path, text: str, name: str = "reference.py") -> Path:
    path = folder / name
    path.write_text(dedent(text))
    return path


def run_all_cells(task: Task) -> None:
    for cell in task.cells:
        inputs = task.inputs(cell, 3)
        made, exact = task.eager(*inputs), task.oracle(*inputs)
        made, exact = (
            result if isinstance(result, tuple) else (result,) for result in (made, exact)
        )
        assert len(made) == len(exact) == len(cell.outputs)
        for spec, out, want in zip(cell.outputs, made, exact, strict=True):
            assert tuple(out.shape) == spec.shape
            assert f"torch.{spec.dtype}" == str(out.dtype)
            if out.is_floating_point():
                assert want.dtype == torch.float64
                torch.testing.assert_close(
                    out.double(), want, rtol=2e-2, atol=2e-2 * float(want.abs().max())
                )


def test_a_function_with_get_inputs(tmp_path: Path) -> None:
    task = load_user(write(tmp_path, FUNCTION), "scaled_add", "gpu")
    assert task.op.origin == "user"
    assert task.op.arguments == ("a", "b", "alpha")
    assert task.op.formula == "a plus alpha times b, rows softmaxed"
    assert [cell.role for cell in task.cells] == ["bench", *["required"] * 11]
    assert {spec.dtype for cell in task.cells for spec in (*cell.inputs, *cell.outputs)} == {
        "bfloat16"
    }
    run_all_cells(task)


def test_the_only_function_needs_no_name(tmp_path: Path) -> None:
    assert load_user(write(tmp_path, FUNCTION), None, "cpu").op.arguments == ("a", "b", "alpha")


def test_values_keep_the_kind_and_size_of_the_example(tmp_path: Path) -> None:
    task = load_user(write(tmp_path, FUNCTION), None, "cpu")
    drawn = [task.inputs(cell, 1) for cell in task.cells if "-scalars" not in cell.name]
    given, small, large, mixed, signed, huge, tiny, zero, itself = drawn
    assert float(huge[0].float().std()) > 100 * float(given[0].float().std()) and not any(
        tensor.any() for tensor in zero
    )
    assert 0 < float(tiny[0].float().std()) < 1e-5 * float(given[0].float().std())
    again = load_user(tmp_path / "reference.py", None, "gpu")
    assert float(signed[1].min()) < 0 and torch.equal(itself[0], again.inputs(task.cells[-1], 2)[0])
    assert float(given[0].min()) < 0 <= float(given[1].min())
    assert 2 < float(given[1].max()) <= 4.1
    assert float(small[0].float().std()) * 64 == pytest.approx(
        float(given[0].float().std()), rel=0.5
    )
    assert float(mixed[0].float().abs().max()) > 10 * float(given[0].float().abs().max())
    assert float(large[0].float().std()) / 8 == pytest.approx(
        float(given[0].float().std()), rel=0.5
    )


def test_the_oracle_is_float64_despite_casts_to_float32(tmp_path: Path) -> None:
    task = load_user(write(tmp_path, FUNCTION), None, "cpu")
    a, b = draw(task.cells[0], 1)
    exact = torch.softmax(a.double() + 2.0 * b.double(), -1)
    assert float((task.oracle(a, b) - exact).abs().max()) < 1e-15


def test_a_model_file_gets_its_state_as_arguments(tmp_path: Path) -> None:
    task = load_user(write(tmp_path, MODEL), None, "cpu")
    assert task.op.arguments == (
        "x",
        "linear_weight",
        "linear_bias",
        "norm_weight",
        "norm_bias",
        "norm_running_mean",
        "norm_running_var",
    )
    run_all_cells(task)
    inputs = draw(task.cells[0], 1)
    before = [tensor.clone() for tensor in inputs]
    first = task.eager(*inputs)
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True)), (
        "running statistics were updated in place"
    )
    assert torch.equal(first, task.eager(*inputs))
    assert not first.requires_grad


def test_integers_masks_fixed_values_and_several_outputs(tmp_path: Path) -> None:
    task = load_user(write(tmp_path, PICKING), "pick", "gpu")
    assert task.op.arguments == ("table", "index", "mask", "offset")
    assert [spec.dtype for spec in task.cells[0].inputs] == ["float32", "int32", "bool"]
    assert [spec.dtype for spec in task.cells[0].outputs] == ["float32", "int32"]
    run_all_cells(task)
    index = draw(task.cells[0], 1)[1]
    # The table has 40 rows, of which the example names the sixth to the thirtieth.
    assert (int(index.min()), int(index.max())) == (0, 39)
    assert [cell.inputs[1].shape for cell in task.cells if cell.role == "bench"] == [(16,)]


def test_the_cpu_profile_keeps_small_examples(tmp_path: Path) -> None:
    task = load_user(write(tmp_path, PICKING), "pick", "cpu")
    assert {cell.inputs[1].shape for cell in task.cells} == {(8,), (16,)}
    assert all(cell.role == "required" for cell in task.cells)


def test_structured_values_are_left_out_where_not_finite(tmp_path: Path) -> None:
    text = "import torch\ndef f(x):\n    return %s\ndef get_inputs():\n    return [torch.randn(4, 50)]\n"
    for formula, kept in (("torch.exp(x)", False), ("torch.tanh(x)", True)):
        task = load_user(write(tmp_path, text % formula), "f", "cpu")
        assert any(cell.name.endswith("mixed") for cell in task.cells) == kept


@pytest.mark.parametrize(
    ("text", "function", "reason"),
    [
        ("import torch\ndef f(x): return x", None, r"no inputs are known: give them, as in --input 'x=bf16\[B,4096\]'"),
        (FUNCTION, "absent", "no function 'absent'"),
        ("raise RuntimeError('boom')", None, "RuntimeError: boom"),
        ("def f(:", None, "SyntaxError"),
        ("def f(x): return x\ndef g(x): return x\nEXAMPLES = [(1,)]", None, "2 functions"),
        ("def f(x): return x\nEXAMPLES = [(1,)]", None, "at least one tensor"),
        ("def f(x): return x\nEXAMPLES = []", None, "EXAMPLES is empty"),
        ("import torch\ndef f(x): return 3\nEXAMPLES = [(torch.ones(2),)]", None, "must return a tensor"),
        ("import torch\ndef f(x): return x @ x\nEXAMPLES = [(torch.ones(2, 3),)]", None, "fails on its own example"),
        ("import torch\ndef f(x): return x\nEXAMPLES = [(torch.ones(2, dtype=torch.float64),)]", None, "float64"),
        ("import torch\ndef f(x): return torch.rand_like(x)\nEXAMPLES = [(torch.ones(9),)]", None, "draws random numbers at line 2"),
        ("import torch\ndef f(x): return x\nEXAMPLES = [(torch.ones(2), torch.ones(2))]", None, "takes 1 arguments"),
        ("import torch\ndef f(x, y): return x\nEXAMPLES = [(torch.ones(2), 1), (1, torch.ones(2))]", None, "which arguments are tensors"),
        ("import torch\ndef f(x, y): return x * y\nEXAMPLES = [(torch.ones(2), 'a'), (torch.ones(2), 'b')]", None, "differ in y"),
        ("import torch\ndef f(x, y): return x.sum(y)\nEXAMPLES = [(torch.ones(2, 2), 0), (torch.ones(2, 2), 1)]", None, "differ in y"),
        ("import torch\ndef f(x): return x\ndef get_inputs(): return 3", None, "must give a list of arguments"),
        ("import torch\ndef f(x): return x.view(torch.int32).float()\nEXAMPLES = [(torch.ones(2),)]", None, "other shapes in float64"),
    ],
)  # fmt: skip
def test_an_unusable_file_says_why(
    tmp_path: Path, text: str, function: str | None, reason: str
) -> None:
    with pytest.raises(UnusableReference, match=reason) as caught:
        load_user(write(tmp_path, text), function, "cpu")
    assert "\n" not in str(caught.value).splitlines()[0]


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(UnusableReference, match=r"absent\.py does not exist$"):
        load_user(tmp_path / "absent.py", None, "cpu")
    with pytest.raises(
        UnusableReference,
        match=r"is not a Python file; a reference is named as FILE\.py or FILE\.py:function$",
    ):
        load_user(tmp_path / "reference.txt:norm", None, "cpu")


def test_a_reference_argument_splits_into_file_and_function() -> None:
    assert split_reference("a/b.py:fn") == (Path("a/b.py"), "fn")
    assert split_reference("a/b.py") == (Path("a/b.py"), None)


@pytest.mark.parametrize(
    ("file", "function", "name"),
    [
        ("mine.py", None, "mine"),
        ("mine.py", "scaled_add", "mine:scaled_add"),
        ("softmax.py", None, "softmax:scaled_add"),
        ("rmsnorm_gelu_tanh.py", None, "rmsnorm_gelu_tanh:scaled_add"),
        ("scaled_add.py", "scaled_add", "scaled_add"),
    ],
)
def test_a_reference_has_a_name_that_the_catalogue_has_not(
    tmp_path: Path, file: str, function: str | None, name: str
) -> None:
    found = load_user(write(tmp_path, FUNCTION, file), function, "cpu").op.name
    assert found == name
    with pytest.raises(UnknownOp):
        get(found)
