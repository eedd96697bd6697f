"""The CPU path: an annotated parameter has the annotated type, and a 1 without one is a constant,
as in a compiled kernel.
"""

from __future__ import annotations

import pytest
import torch

from referee.interpreter.interpret import Executed, Execution
from referee.plans.plan import LaunchPlan, Value
from referee.sandbox.zygote import Zygote
from referee.verdict import Rejection
from tests.referee.judge.interpreting import rejection, run
from tests.referee.judge.plans import HEADER, buffers_of, dense, launch

TEXT = (
    HEADER
    + """
@triton.jit{options}
def kernel(x0, out, given{annotation}):
    tl.store(out, {result})
"""
)


def answered(
    zygote: Zygote, annotation: str, given: Value, result: str, options: str = ""
) -> list[Executed | Rejection]:
    x, out = dense(0, (4,), "float32"), dense(1, (1,), "float32")
    step = launch("kernel", (1, 1, 1), {}, x0=x, out=out, given=x if given == "x0" else given)
    plan = LaunchPlan(buffers_of(x, out, inputs=1), (x,), (step,), (out,))
    text = TEXT.format(annotation=annotation and f": {annotation}", result=result, options=options)
    return run(zygote, text, Execution(plan, (torch.tensor([1.5, 0.0, 0.0, 0.0]),)))


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
def test_annotations_decide_the_type(
    interpreter: Zygote, annotation: str, given: Value, result: str, expected: float
) -> None:
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
def test_values_that_are_none_of_the_type_are_named(
    interpreter: Zygote, annotation: str, given: Value, words: str
) -> None:
    found = rejection(answered(interpreter, annotation, given, "0.0"))
    assert found.guard == "kernel_error" and words in found.reason


@pytest.mark.parametrize(
    ("annotation", "given", "options"),
    [
        ("", 2, ""),
        ("tl.int32", 1, ""),
        ("int", 1, ""),
        ("", 1, "(do_not_specialize=['given'])"),
        ("", 1, "(do_not_specialize=[2])"),
        ("", 1.0, ""),
        ("", True, ""),
    ],
)
def test_numbers_that_stay_numbers_can_be_converted(
    interpreter: Zygote, annotation: str, given: Value, options: str
) -> None:
    (answer,) = answered(interpreter, annotation, given, "given.to(tl.float32)", options)
    assert isinstance(answer, Executed), answer
    assert answer.outputs[0].item() == float(given)  # type: ignore[arg-type]


def test_a_one_is_a_constant(interpreter: Zygote) -> None:
    (answer,) = answered(
        interpreter, "", 1, "tl.load(x0) / given + tl.sum(tl.arange(0, 4) // given)"
    )
    assert isinstance(answer, Executed) and answer.outputs[0].item() == 7.5
    found = rejection(answered(interpreter, "", 1, "given.to(tl.float32)"))
    assert found.guard == "kernel_error" and "'int' object has no attribute 'to'" in found.reason


def test_parts_of_a_tuple_are_typed_alike(interpreter: Zygote) -> None:
    (answer,) = answered(interpreter, "", (7, 1), "given[0].to(tl.float32) / given[1]")
    assert isinstance(answer, Executed) and answer.outputs[0].item() == 7.0
    found = rejection(answered(interpreter, "", (7, 1), "given[1].to(tl.float32)"))
    assert "'int' object has no attribute 'to'" in found.reason
