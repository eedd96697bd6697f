"""References that a user brings become tasks, or fail with one clear line."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
import torch

from referee.ops.catalogue import UnknownOp, get
from referee.ops.task import Task
from referee.ops.traits import Traits
from referee.ops.user import UserReferenceError, load_user, split_reference
from referee.ops.user_words import drawn_values
from referee.ops.values import draw

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
        made, exact = (result if isinstance(result, tuple) else (result,) for result in (made, exact))
        assert len(made) == len(exact) == len(cell.outputs)
        for spec, out, want in zip(cell.outputs, made, exact, strict=True):
            assert tuple(out.shape) == spec.shape
            assert f"torch.{spec.dtype}" == str(out.dtype)
            if out.is_floating_point():
                assert want.dtype == torch.float64
                torch.testing.assert_close(out.double(), want, rtol=2e-2, atol=2e-2 * float(want.abs().max()))


def test_a_function_with_get_inputs(tmp_path: Path) -> None:
    task = load_user(write(tmp_path, FUNCTION), "scaled_add", "gpu")
    assert task.op.origin == "user"
    assert task.op.arguments == ("a", "b")
    assert task.op.formula == "a plus alpha times b, rows softmaxed"
    assert [cell.role for cell in task.cells] == ["bench", *["required"] * 8]
    assert {spec.dtype for cell in task.cells for spec in (*cell.inputs, *cell.outputs)} == {"bfloat16"}
    run_all_cells(task)


def test_the_only_function_needs_no_name(tmp_path: Path) -> None:
    assert load_user(write(tmp_path, FUNCTION), None, "cpu").op.arguments == ("a", "b")


def test_values_keep_the_kind_and_size_of_the_example(tmp_path: Path) -> None:
    task = load_user(write(tmp_path, FUNCTION), None, "cpu")
    given, small, large, mixed, signed, huge, tiny, zero, itself = (task.inputs(cell, 1) for cell in task.cells)
    assert float(huge[0].float().std()) > 100 * float(given[0].float().std()) and not any(tensor.any() for tensor in zero)
    assert 0 < float(tiny[0].float().std()) < 1e-5 * float(given[0].float().std())
    again = load_user(tmp_path / "reference.py", None, "gpu")
    assert float(signed[1].min()) < 0 and torch.equal(itself[0], again.inputs(task.cells[-1], 2)[0])
    assert float(given[0].min()) < 0 <= float(given[1].min())
    assert 2 < float(given[1].max()) <= 4.1
    assert float(small[0].float().std()) * 64 == pytest.approx(float(given[0].float().std()), rel=0.5)
    assert float(mixed[0].float().abs().max()) > 10 * float(given[0].float().abs().max())
    assert float(large[0].float().std()) / 8 == pytest.approx(float(given[0].float().std()), rel=0.5)


def test_the_oracle_is_float64_although_the_reference_casts_to_float32(tmp_path: Path) -> None:
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
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True)), "running statistics were updated in place"
    assert torch.equal(first, task.eager(*inputs))
    assert not first.requires_grad


def test_integers_masks_fixed_values_and_several_outputs(tmp_path: Path) -> None:
    task = load_user(write(tmp_path, PICKING), "pick", "gpu")
    assert task.op.arguments == ("table", "index", "mask")
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


def test_structured_values_are_left_out_where_the_reference_does_not_stay_finite(tmp_path: Path) -> None:
    text = "import torch\ndef f(x):\n    return %s\ndef get_inputs():\n    return [torch.randn(4, 50)]\n"
    for formula, kept in (("torch.exp(x)", False), ("torch.tanh(x)", True)):
        task = load_user(write(tmp_path, text % formula), "f", "cpu")
        assert any(cell.name.endswith("mixed") for cell in task.cells) == kept


SEQUENTIAL = """
import torch

class Model(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(2, 2))

def get_inputs():
    return [torch.ones(3, 2)]
"""

SAME_NAMES = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(2))

    def forward(self, w):
        return w + self.w

def get_inputs():
    return [torch.ones(3, 2)]
"""


@pytest.mark.parametrize(
    ("text", "function", "reason"),
    [
        ("import torch\ndef f(x): return x", None, "neither get_inputs"),
        (FUNCTION, "absent", "no function 'absent'"),
        ("raise RuntimeError('boom')", None, "RuntimeError: boom"),
        ("def f(:", None, "SyntaxError"),
        ("def f(x): return x\ndef g(x): return x\nEXAMPLES = [(1,)]", None, "2 functions"),
        ("def f(x): return x\nEXAMPLES = [(1,)]", None, "at least one tensor"),
        ("def f(x): return x\nEXAMPLES = []", None, "at least one tensor"),
        ("import torch\ndef f(x): return 3\nEXAMPLES = [(torch.ones(2),)]", None, "must return a tensor"),
        ("import torch\ndef f(x): return x @ x\nEXAMPLES = [(torch.ones(2, 3),)]", None, "fails on its own example"),
        ("import torch\ndef f(x): return x\nEXAMPLES = [(torch.ones(2, dtype=torch.float64),)]", None, "float64"),
        ("import torch\ndef f(x): return torch.rand_like(x)\nEXAMPLES = [(torch.ones(9),)]", None, "different answers"),
        ("import torch\ndef f(x): return x\nEXAMPLES = [(torch.ones(2), torch.ones(2))]", None, "takes 1 arguments"),
        ("import torch\ndef f(x, y): return x\nEXAMPLES = [(torch.ones(2), 1), (1, torch.ones(2))]", None, "which arguments are tensors"),
        ("import torch\ndef f(x, y): return x * y\nEXAMPLES = [(torch.ones(2), 1.5), (torch.ones(2), 2.5)]", None, "differ in y"),
        ("import torch\ndef f(*xs): return xs[0]\nEXAMPLES = [(torch.ones(2),)]", None, r"takes \*args"),
        ("import torch\ndef f(xs): return xs[0]\nEXAMPLES = [([torch.ones(2)],)]", None, "holds tensors in a list"),
        ("import torch\ndef f(x): return x\ndef get_inputs(): return torch.ones(2, 3)", None, "must return a list of arguments"),
        ("import torch\ndef f(x): return x.view(torch.int32).float()\nEXAMPLES = [(torch.ones(2),)]", None, "other shapes in float64"),
        (SEQUENTIAL, None, "cannot be the name of an argument"),
        (SAME_NAMES, None, "two arguments are called 'w'"),
    ],
)  # fmt: skip
def test_an_unusable_file_says_why(tmp_path: Path, text: str, function: str | None, reason: str) -> None:
    with pytest.raises(UserReferenceError, match=reason) as caught:
        load_user(write(tmp_path, text), function, "cpu")
    assert "\n" not in str(caught.value).splitlines()[0]


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserReferenceError, match=r"absent\.py does not exist$"):
        load_user(tmp_path / "absent.py", None, "cpu")
    with pytest.raises(UserReferenceError, match=r"does not exist; a reference is named as FILE\.py or FILE\.py:function$"):
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
def test_a_reference_has_a_name_that_the_catalogue_has_not(tmp_path: Path, file: str, function: str | None, name: str) -> None:
    found = load_user(write(tmp_path, FUNCTION, file), function, "cpu").op.name
    assert found == name
    with pytest.raises(UnknownOp):
        get(found)


LEAVING = """
import torch
torch.set_default_dtype(torch.bfloat16)
torch.set_grad_enabled(False)
torch.manual_seed(7)

def f(x):
    return x + torch.ones(3)

def get_inputs():
    return [torch.randn(4, 3)]
"""


def test_what_a_file_sets_for_good_ends_with_it(tmp_path: Path) -> None:
    usual = torch.get_default_dtype(), torch.is_grad_enabled()
    torch.manual_seed(1)
    expected = torch.rand(3), draw(load_user(write(tmp_path, FUNCTION), None, "cpu").cells[0], 1)
    torch.manual_seed(1)
    task = load_user(write(tmp_path, LEAVING, "leaving.py"), None, "cpu")
    assert [spec.dtype for spec in (*task.cells[0].inputs, *task.cells[0].outputs)] == ["bfloat16"] * 2
    assert (torch.get_default_dtype(), torch.is_grad_enabled()) == usual
    assert torch.equal(torch.rand(3), expected[0])
    assert task.eager(*task.inputs(task.cells[0], 1)).dtype == torch.bfloat16, "its functions run as the file set torch"
    assert torch.get_default_dtype() == torch.float32


def test_values_do_not_depend_on_torch_s_default_dtype(tmp_path: Path) -> None:
    cell = load_user(write(tmp_path, FUNCTION.replace("dtype=torch.bfloat16", "dtype=torch.float32")), None, "cpu").cells[3]
    expected = draw(cell, 1)
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert all(torch.equal(one, other) for one, other in zip(draw(cell, 1), expected, strict=True))
    finally:
        torch.set_default_dtype(torch.float32)


IN_PLACE = """
import torch

def f(x, w):
    x.clamp_(min=0)
    return x.mul_(w)

def get_inputs():
    return [torch.randn(6, 50), torch.randn(50)]
"""


def test_a_reference_may_write_into_its_inputs(tmp_path: Path) -> None:
    task = load_user(write(tmp_path, IN_PLACE), None, "cpu")
    x, w = task.inputs(task.cells[0], 1)
    before = x.clone()
    assert float(x.min()) < 0, "the example is looked at before it is changed"
    assert torch.equal(task.eager(x, w), before.clamp(min=0) * w) and torch.equal(x, before)
    assert task.timed is not None and task.timed(x, w) is not None and not torch.equal(x, before), "a baseline makes no copies"


def test_a_baseline_of_a_module_copies_no_parameters(tmp_path: Path) -> None:
    task = load_user(write(tmp_path, MODEL), None, "cpu")
    inputs = task.inputs(task.cells[0], 1)
    with torch.profiler.profile() as seen:
        assert task.timed is not None
        task.timed(*inputs)
    assert "aten::clone" not in {event.name for event in seen.events() or ()}


@pytest.mark.parametrize(
    ("made", "recipe"),
    [
        ("torch.ones(64, dtype=torch.bool)", "range:0:1"),
        ("torch.randint(0, 50, (4000,))", "range:0:49"),
        ("torch.tensor([-100, 3, 4, 5] * 9)", "choice:-100:3:4:5"),
        ("torch.tensor([0.0, -1e9] * 9)", "choice:-1000000000.0:0.0"),
        ("torch.tensor([0.0, float('-inf')] * 9)", "own"),
        ("torch.rand(64)", "uniform"),
        ("torch.ones(64)", "uniform"),
        ("torch.randn(64)", "normal"),
    ],
)
def test_values_are_of_the_kind_of_the_example(tmp_path: Path, made: str, recipe: str) -> None:
    task = load_user(write(tmp_path, f"import torch\ndef f(x): return x.sum() * 1.0\nEXAMPLES = [({made},)]\n"), None, "cpu")
    assert task.cells[0].values == f"{recipe}|"
    for cell in task.cells:
        (x,) = task.inputs(cell, 5)
        allowed = set(task.inputs(task.cells[-1], 0)[0].tolist())
        assert recipe not in ("own",) and not recipe.startswith("choice") or set(x.tolist()) <= allowed
    assert task.cells[-1].name == "example0-itself"


def test_both_signs_are_drawn_where_the_reference_takes_them(tmp_path: Path) -> None:
    text = "import torch\ndef f(x, v): return x * torch.rsqrt(v)\ndef get_inputs(): return [torch.rand(9, 20), torch.rand(20) + 0.5]\n"
    task = load_user(write(tmp_path, text), None, "cpu")
    assert [cell.values for cell in task.cells if cell.name.endswith("signed")] == ["mixed|uniform|"]


def test_what_is_drawn_is_said(tmp_path: Path) -> None:
    task = load_user(write(tmp_path, PICKING), "pick", "gpu")
    said = drawn_values(task.required, task.given)
    assert said == "table of both signs; index 0 to 39; mask 0 to 1; no NaN or infinities; and the examples as they are"


def test_cells_that_the_reference_refuses_are_left_out(tmp_path: Path) -> None:
    text = "import torch\ndef f(p, t): return torch.nn.functional.binary_cross_entropy(p, t, reduction='none')\n"
    text += "def get_inputs(): return [torch.rand(6, 40), torch.rand(6, 40)]\n"
    names = [cell.name for cell in load_user(write(tmp_path, text), None, "cpu").cells]
    assert names[0] == "example0-given" and not {"example0-large", "example0-huge"} & set(names)


@pytest.mark.parametrize(
    ("body", "traits"),
    [
        ("x * 2", Traits(mixes=(False,))),
        ("torch.tanh(x)", Traits(cancelling=True, mixes=(False,))),
        ("torch.softmax(x, -1)", Traits(probabilities=True, mixes=(True,))),
        ("x / x.norm(dim=-1, keepdim=True)", Traits(mixes=(True,))),
        ("x.cumsum(-1)", Traits(mixes=(True,))),
        ("x.sum(-1)", Traits(mixes=(True,))),
        ("(x + 1, x - x.mean())", Traits(mixes=(False, True))),
        ("torch.cat([x, x], -1)", Traits(mixes=(True,))),
    ],
)
def test_what_a_reference_does_is_found_by_running_it(tmp_path: Path, body: str, traits: Traits) -> None:
    text = f"import torch\ndef f(x): return {body}\ndef get_inputs(): return [torch.randn(6, 40)]\n"
    assert load_user(write(tmp_path, text), None, "cpu").traits == traits


def test_constants_of_a_reference_meet_float64(tmp_path: Path) -> None:
    text = "import torch\nW = torch.randn(40, 40)\ndef f(x): return x @ W\ndef get_inputs(): return [torch.randn(6, 40)]\n"
    task = load_user(write(tmp_path, text), None, "cpu")
    assert task.oracle(*task.inputs(task.cells[0], 1)).dtype == torch.float64


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import sys\nsys.exit(0)\n", "failed on import: SystemExit: 0"),
        ("def f(x): return x\ndef get_inputs(): raise ValueError('no\\nluck')\n", r"get_inputs\(\) failed: ValueError: no luck"),
        ("import torch\ndef f(x): return x\ndef get_inputs(): return [torch.zeros(10**9, 10**9)]\n", "get_inputs"),
        ("import sys, torch\ndef f(x): sys.exit(0)\ndef get_inputs(): return [torch.ones(3)]\n", "ended the process"),
        ("import torch\nclass Model(torch.nn.Module): ...\nget_inputs = lambda: [torch.ones(3)]\nget_init_inputs = lambda: [1]\n", "Model"),
    ],
    ids=["exits on import", "inputs fail", "inputs too large", "exits", "model fails"],
)  # fmt: skip
def test_what_fails_in_the_users_own_code_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UserReferenceError, match=words) as refused:
        load_user(write(tmp_path, text), None, "cpu")
    assert "\n" not in str(refused.value)
