"""What a reference changes, and which values are drawn for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from referee.ops.traits import Traits
from referee.ops.values import draw
from referee.reference.unusable import UnusableReference
from referee.reference.words import drawn_values
from tests.referee.own_reference import load_user, rejecting, task
from tests.referee.reference.test_reference_files import FUNCTION, MODEL, PICKING, write

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
    assert [spec.dtype for spec in (*task.cells[0].inputs, *task.cells[0].outputs)] == [
        "bfloat16"
    ] * 2
    assert (torch.get_default_dtype(), torch.is_grad_enabled()) == usual
    assert torch.equal(torch.rand(3), expected[0])
    assert task.eager(*task.inputs(task.cells[0], 1)).dtype == torch.bfloat16, (
        "its functions run as the file set torch"
    )
    assert torch.get_default_dtype() == torch.float32


def test_values_do_not_depend_on_torch_s_default_dtype(tmp_path: Path) -> None:
    cell = load_user(
        write(tmp_path, FUNCTION.replace("dtype=torch.bfloat16", "dtype=torch.float32")),
        None,
        "cpu",
    ).cells[3]
    expected = draw(cell, 1)
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert all(
            torch.equal(one, other) for one, other in zip(draw(cell, 1), expected, strict=True)
        )
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
    assert task.timed is not None and task.timed(x, w) is not None and not torch.equal(x, before), (
        "a baseline makes no copies"
    )


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
    task = load_user(
        write(tmp_path, f"import torch\ndef f(x): return x.sum() * 1.0\nEXAMPLES = [({made},)]\n"),
        None,
        "cpu",
    )
    assert task.cells[0].values == f"{recipe}|"
    for cell in task.cells:
        (x,) = task.inputs(cell, 5)
        allowed = set(task.inputs(task.cells[-1], 0)[0].tolist())
        assert (
            recipe not in ("own",) and not recipe.startswith("choice") or set(x.tolist()) <= allowed
        )
    assert task.cells[-1].name == "example0-itself"


def test_both_signs_are_drawn_where_the_reference_takes_them(tmp_path: Path) -> None:
    text = "import torch\ndef f(x, v): return x * torch.rsqrt(v)\ndef get_inputs(): return [torch.rand(9, 20), torch.rand(20) + 0.5]\n"
    task = load_user(write(tmp_path, text), None, "cpu")
    assert [cell.values for cell in task.cells if cell.name.endswith("signed")] == [
        "mixed|uniform|"
    ]


def test_what_is_drawn_is_said(tmp_path: Path) -> None:
    task = load_user(write(tmp_path, PICKING), "pick", "gpu")
    said = drawn_values(task.required, task.given)
    drawn, offsets = (
        "table of both signs; index 0 to 39; mask 0 to 1",
        "offset 1.5, 2.25, 0.75, 4.5",
    )
    assert said == f"{drawn}; {offsets}; no NaN or infinities; and the examples as they are"


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
def test_what_a_reference_does_is_found_by_running_it(
    tmp_path: Path, body: str, traits: Traits
) -> None:
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
def test_what_fails_in_the_users_own_code_is_one_line(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(UnusableReference, match=words) as refused:
        load_user(write(tmp_path, text), None, "cpu")
    assert "\n" not in str(refused.value)


TABLES = """
import torch

def turned(x, cos):
    return x * cos

def pairs(x, cos):
    return x * cos

def free(x, cos):
    return x * cos

ANGLE = torch.arange(48.0).view(3, 16).cos()
"""


@pytest.mark.parametrize(
    ("made", "tie"),
    [
        ("ANGLE.repeat(1, 2)", "both halves of a row alike"),
        ("ANGLE.repeat_interleave(2, -1)", "every two neighbours alike"),
        ("ANGLE.roll(1, 0).repeat(1, 2).roll(1, 1)", "both halves of a row alike"),
        ("torch.randn(3, 32)", ""),
        ("torch.ones(3, 32)", ""),
    ],
)
def test_drawn_tables_keep_the_halves_of_the_example(tmp_path: Path, made: str, tie: str) -> None:
    """Tables of rotary embeddings hold every number twice."""
    text = f"{TABLES}EXAMPLES = [(torch.randn(3, 32), {made})]\n"
    task = load_user(write(tmp_path, text), "turned", "cpu")
    assert (tie or "alike") in drawn_values(task.cells, {}) or not tie
    for cell in task.cells:
        table = task.inputs(cell, 3)[1]
        halves = torch.equal(table[:, :16], table[:, 16:])
        pairs = torch.equal(table[:, 0::2], table[:, 1::2])
        if not cell.name.endswith(("zero", "itself")):
            assert (halves, pairs) == ("halves" in tie, "neighbours" in tie), cell.name


EIGHT = """
import torch

def widened(x):
    return x.float().sum(-1)

def narrowed(x):
    return x.double().sum(-1)

EXAMPLES = [(torch.randn(3, 40).to(torch.float8_e4m3fn),)]
"""


@pytest.mark.parametrize("inputs", [(), ("x=e4m3[B,40]",), ("x=e5m2[B,40]",)])
def test_inputs_of_eight_bits_are_drawn(tmp_path: Path, inputs: tuple[str, ...]) -> None:
    task = load_user(write(tmp_path, EIGHT), "widened", "cpu", *inputs)
    assert {cell.inputs[0].dtype.startswith("float8") for cell in task.cells} == {True}
    assert not rejecting(task, task.eager, 1)
    assert rejecting(task, lambda x: x.float()[:, 1:].sum(-1), 1)


def test_float64_answers_need_float64_arithmetic(tmp_path: Path) -> None:
    task = load_user(write(tmp_path, EIGHT), "narrowed", "cpu", "x=f32[B,40]")
    assert not rejecting(task, lambda x: x.double().flip(-1).cumsum(-1)[:, -1], 1)
    assert rejecting(task, lambda x: x.sum(-1).double(), 1)


@pytest.mark.parametrize("dtype, least", [("i32", 1 << 24), ("i64", 1 << 32)])
def test_integers_of_no_known_range_have_signs_and_many_bits(
    tmp_path: Path, dtype: str, least: int
) -> None:
    file = write(tmp_path, "import torch\ndef f(x):\n    return x // 3\n")
    task = load_user(file, "f", "cpu", f"x={dtype}[B,256]")
    drawn = [task.inputs(cell, 1)[0] for cell in task.required]
    assert any(bool((one < 0).any()) and bool((one > 0).any()) for one in drawn)
    assert max(int(one.max()) for one in drawn) > least


def test_integers_that_number_rows_have_no_sign(tmp_path: Path) -> None:
    file = write(tmp_path, "import torch\ndef f(x, i):\n    return x[i.abs()]\n")
    task = load_user(file, "f", "cpu", "x=f32[N,8] i=i64[K]")
    assert all(
        int(task.inputs(cell, 1)[1].max()) < cell.inputs[0].shape[0] for cell in task.required
    )


def test_nearly_equal_values_are_numbered_in_no_tiny_case(tmp_path: Path) -> None:
    body = "torch.topk(torch.softmax(x.float(), -1), 2).indices"
    for taken, judged in ((body, False), ("torch.topk(x, 2).indices", True)):
        made = task(tmp_path, "x", taken, "torch.randn(3, 8).bfloat16()")
        assert any(cell.name.endswith("-tiny") for cell in made.required) == judged, taken
