"""The CPU path: an annotated parameter has the annotated type, as in a compiled kernel."""

from __future__ import annotations

import pytest
import torch

from referee.interpret import Executed, Execution
from referee.plan import LaunchPlan, Value
from referee.verdict import Rejection
from referee.zygote import Zygote
from tests.referee.judge.interpreting import rejection, run
from tests.referee.judge.plans import HEADER, buffers_of, dense, launch

TEXT = (
    HEADER
    + """
@triton.jit
def kernel(x0, out, given: {annotation}):
    tl.store(out, {result})
"""
)


def answered(zygote: Zygote, annotation: str, given: Value, result: str) -> list[Executed | Rejection]:
    x, out = dense(0, (4,), "float32"), dense(1, (1,), "float32")
    step = launch("kernel", (1, 1, 1), {}, x0=x, out=out, given=x if given == "x0" else given)
    plan = LaunchPlan(buffers_of(x, out, inputs=1), (x,), (step,), (out,))
    return run(zygote, TEXT.format(annotation=annotation, result=result), Execution(plan, (torch.tensor([1.5, 0.0, 0.0, 0.0]),)))


@pytest.mark.parametrize(
    ("annotation", "given", "result", "expected"),
    [
        ("tl.uint8", 200, "(given + given).to(tl.float32)", 144.0),
        ("tl.int8", -100, "(given + given).to(tl.float32)", 56.0),
        ("tl.int64", 7, "(given + 2147483640 > 0).to(tl.float32)", 1.0),
        ("int", 2147483647, "(given + given).to(tl.float32)", -2.0),
        ("'fp16'", 0.1, "given.to(tl.float32)", 0.0999755859375),
        ("tl.bfloat16", 0.1, "given.to(tl.float32)", 0.10009765625),
        ("float", 3, "given / 2", 1.5),
        ("bool", True, "given.to(tl.float32)", 1.0),
        ("'*fp32'", "x0", "tl.load(given)", 1.5),
        ("'*u32'", "x0", "tl.load(given).to(tl.float32)", float(0x3FC00000)),
        ("'torch.Tensor'", "x0", "tl.load(given)", 1.5),
    ],
)
def test_annotations_decide_the_type(interpreter: Zygote, annotation: str, given: Value, result: str, expected: float) -> None:
    (answer,) = answered(interpreter, annotation, given, result)
    assert isinstance(answer, Executed), answer
    assert answer.outputs[0].item() == expected


@pytest.mark.parametrize(
    ("annotation", "given", "words"),
    [
        ("tl.uint8", 257, "`given` is annotated u8: 257 does not fit type u8"),
        ("tl.int8", 128, "128 does not fit type i8"),
        ("tl.uint32", -1, "-1 does not fit type u32"),
        ("tl.int32", 0.5, "0.5 is not an integer"),
        ("tl.float16", 70000.0, "70000.0 does not fit type fp16"),
        ("bool", 2, "`given` is annotated bool, and 2 is passed"),
        ("tl.float32", "x0", "`given` is annotated fp32, and a tensor is passed"),
    ],
)
def test_values_that_are_none_of_the_type_are_named(interpreter: Zygote, annotation: str, given: Value, words: str) -> None:
    found = rejection(answered(interpreter, annotation, given, "0.0"))
    assert found.guard == "kernel_error" and words in found.reason
