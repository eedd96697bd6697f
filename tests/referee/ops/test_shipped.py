"""Operations of the catalogue that are functions: described, found, and judged as functions are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kmint_tui.core.op_search import find, resolve
from kmint_tui.graph.operations import program_of
from kmint_tui.template.write import program_source
from referee.judge import Referee
from referee.ops import UnknownOp, catalogue, functions, get, listed
from referee.ops.shipped import FOLDER, shipped
from referee.problem import TaskName
from referee.reference.asked import Asked
from referee.reference.grammar import parse_inputs
from referee.reference.load import load_reference
from referee.reference.task import load_task


def test_every_function_is_described() -> None:
    """Its inputs name its parameters in order, and no other operation has its name."""
    names = [op.name for op in listed()]
    assert len(names) == len(set(names)) == len(catalogue()) + len(functions())
    for name, one in shipped().items():
        assert get(name) is one.op and one.op.is_function and one.op.origin == "catalogue"
        for text in one.inputs:
            (given,) = parse_inputs([text])
            assert tuple(argument for argument, _ in given.entries) == one.op.arguments
        assert one.signature.startswith(f"run({one.op.arguments[0]}: Tensor[")
        assert one.op.title and not one.op.title.endswith(".") and one.words


def test_every_public_function_is_listed() -> None:
    defined = {
        line.partition("(")[0].removeprefix("def ")
        for file in FOLDER.glob("*.py")
        for line in file.read_text().splitlines()
        if line.startswith("def ") and not line.startswith("def _")
    }
    assert defined == set(shipped())


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("adaptive layer norm", "adaln_modulate"),
        ("silu and mul", "swiglu_packed"),
        ("layernorm without bias", "layernorm_no_bias"),
        ("label smoothing", "cross_entropy_smooth"),
        ("topk router", "moe_gate"),
        ("partial rotary", "rope_partial"),
        ("per token float8", "quantize_fp8_rows"),
        ("gradient of cross entropy", "cross_entropy_backward"),
    ],
)
def test_usual_words_find_a_function(words: str, name: str) -> None:
    assert name in [op.name for op in find(words)]


def test_the_old_names_still_mean_what_they_meant() -> None:
    assert [resolve(words).name for words in ("softmax", "rotary", "layer norm", "cross entropy")] == [
        "softmax", "rope", "layernorm", "cross_entropy",
    ]  # fmt: skip
    with pytest.raises(UnknownOp):
        get("add_rmsnorm_bothh")


def test_several_results_and_dtypes_are_judged() -> None:
    task = load_task(_asked("add_rmsnorm_both"), "cpu")
    assert task.op == get("add_rmsnorm_both")
    assert {len(cell.outputs) for cell in task.required} == {2}
    assert {cell.inputs[0].dtype for cell in task.required} == {"bfloat16", "float16", "float32"}
    fp8 = load_task(_asked("quantize_fp8_rows"), "cpu")
    assert [spec.dtype for spec in fp8.required[0].outputs] == ["float8_e4m3fn", "float32"]


def test_a_gradient_is_that_of_autograd() -> None:
    """The gradient for x and for the weight, against one written by hand."""
    function = load_reference(_asked("rmsnorm_backward")).function
    dout, x = torch.randn(2, 5, 16, dtype=torch.float64).unbind()
    w = torch.rand(16, dtype=torch.float64) + 0.5
    dx, dw = function(dout, x, w)
    scale = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    normed = x * scale
    expected = scale * (dout * w - normed * (dout * w * normed).mean(-1, keepdim=True))
    torch.testing.assert_close(dx, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(dw, (dout * normed).sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["swiglu_packed", "quantize_fp8_rows", "rmsnorm_backward"])
def test_the_template_is_right_and_a_wrong_kernel_falls(referee: Referee, name: str) -> None:
    source = program_source(program_of(get(name), name))
    verdict = referee.judge(source, name, seed=3)
    assert (verdict.verdict, verdict.op) == ("correct", name), verdict.reason
    wrong = source.replace(".to(tl.float32)", ".to(tl.float32) * 1.01", 1)
    assert referee.judge(wrong, name).stage == "correct"


def _asked(name: str) -> Asked:
    asked = TaskName.of(name).asked
    assert asked is not None and Path(asked.file).is_file()
    return asked
