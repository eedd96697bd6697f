"""Values in the interpreter: combiners, libdevice, dot products and arguments of every kind."""

from __future__ import annotations

import pytest
import torch

from referee.interpreter.interpret import Executed, Execution, InterpreterUnsupported
from referee.plans.plan import Argument, Buffer, DtypeValue, Launch, LaunchConfig, LaunchPlan
from referee.sandbox.zygote import Zygote
from tests.referee.judge.interpreting import ROW, run
from tests.referee.judge.plans import HEADER, buffers_of, dense, launch, rowwise
from tests.referee.judge.test_interpret import row

COMBINERS = """
@triton.jit
def prefer_larger(a, i, b, j):
    keep = (a > b) | ((a == b) & (i < j))
    return tl.where(keep, a, b), tl.where(keep, i, j)


@triton.jit
def mul(a, b):
    return a * b


@triton.jit
def larger_by_dtype(a, b):
    keep = a > b
    if (a + tl.zeros((1,), tl.int1)).dtype.is_floating():
        keep |= a != a
    return tl.where(keep, a, b)


@triton.jit
def sum_of_block(a, b):
    return a + tl.sum(b + tl.zeros((2,), tl.float32), 0) * 0.5


@triton.jit
def sum_by_halves(a, b):
    return tl.sum(tl.reshape(tl.where(tl.arange(0, 2) > 0, a, b), (1, 2)).to(tl.float32))
"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("body", "result", "expected"),
    [
        ("s = tl.sum(v, axis=0)", "v * 0 + s", lambda x: x.sum(-1, keepdim=True).expand_as(x)),
        (
            "s = tl.max(v, axis=0, keep_dims=True)",
            "v * 0 + s",
            lambda x: x.amax(-1, keepdim=True).expand_as(x),
        ),
        (
            "s = tl.argmax(v, axis=0)",
            "v * 0 + s",
            lambda x: x.argmax(-1, keepdim=True).expand_as(x),
        ),
        ("s = tl.cumsum(v, axis=0)", "s", lambda x: x.cumsum(-1)),
        ("s = tl.cumsum(v, axis=0, reverse=True)", "s", lambda x: x.flip(-1).cumsum(-1).flip(-1)),
        (
            "s = tl.associative_scan(v * 0 + 2.0, 0, mul)",
            "s",
            lambda x: 2.0 ** torch.arange(1, x.shape[1] + 1).expand_as(x),
        ),
        (
            "s, i = tl.reduce((v, cols), 0, prefer_larger)",
            "v * 0 + i",
            lambda x: x.argmax(-1, keepdim=True).expand_as(x),
        ),
        (
            "s = tl.reduce(v, 0, larger_by_dtype)",
            "v * 0 + s",
            lambda x: x.amax(-1, keepdim=True).expand_as(x),
        ),
        (
            "s = tl.associative_scan(v, 0, larger_by_dtype)",
            "s",
            lambda x: x.cummax(-1).values,
        ),
        (
            "s = tl.reduce(v.to(tl.float32), 0, sum_of_block)",
            "v * 0 + s",
            lambda x: x.sum(-1, keepdim=True).expand_as(x),
        ),
        (
            "s = tl.reduce(v.to(tl.float32), 0, sum_by_halves)",
            "v * 0 + s",
            lambda x: x.sum(-1, keepdim=True).expand_as(x),
        ),
        (
            "s = tl.sum(tl.reshape(v, (8, 8)))",
            "v * 0 + s",
            lambda x: x.sum(-1, keepdim=True).expand_as(x),
        ),
    ],
)
def test_reductions_and_scans_with_any_combiner(
    interpreter: Zygote, dtype: torch.dtype, body: str, result: str, expected: object
) -> None:
    # Small different integers: exact in any order and dtype, and no ties.
    x = torch.stack([torch.randperm(20) for _ in range(3)]).to(dtype)
    plan = rowwise("kernel", (3, 20), str(dtype).removeprefix("torch."), block=64)
    answer = run(
        interpreter, ROW.format(body=body, result=result) + COMBINERS, Execution(plan, (x,))
    )[0]
    assert isinstance(answer, Executed) and callable(expected), answer
    torch.testing.assert_close(answer.outputs[0], expected(x.float()).to(dtype), rtol=0, atol=0)


def test_sums_in_bfloat16_lose_bits_as_on_a_gpu(interpreter: Zygote) -> None:
    x = torch.cat([torch.full((1, 1), 256.0), torch.full((1, 31), 0.5)], dim=1).bfloat16()
    # Every addition of 0.5 to 256 is lost in bfloat16; float32 would give 271.5.
    assert 256.0 <= row(interpreter, x, "v * 0 + s", "s = tl.sum(v, axis=0)")[0, 0] < 271.5


WITH_LIBDEVICE = ROW.replace("as tl\n", "as tl\nfrom triton.language.extra import libdevice\n", 1)


@pytest.mark.parametrize(
    ("name", "reference"),
    [("tanh", torch.tanh), ("erf", torch.erf), ("fast_expf", torch.exp), ("log1p", torch.log1p)],
)
def test_libdevice_functions_run(interpreter: Zygote, name: str, reference: object) -> None:
    x = torch.linspace(0, 2, 40)[None]
    plan = rowwise("kernel", (1, 40), "float32", block=64)
    answer = run(
        interpreter,
        WITH_LIBDEVICE.format(body="pass", result=f"libdevice.{name}(v)"),
        Execution(plan, (x,)),
    )[0]
    assert isinstance(answer, Executed) and callable(reference)
    torch.testing.assert_close(answer.outputs[0], reference(x))


def test_what_only_a_gpu_runs_is_not_the_kernel_s_fault(interpreter: Zygote) -> None:
    plan = rowwise("kernel", (1, 40), "float32", block=64)
    assembly = "tl.inline_asm_elementwise('mov.b32 $0, $1;', '=r,r', [v], tl.float32, True, 1)"
    with pytest.raises(InterpreterUnsupported, match="interpreter cannot run inline assembly"):
        run(
            interpreter,
            WITH_LIBDEVICE.format(body="pass", result=assembly),
            Execution(plan, (torch.ones(1, 40),)),
        )


DOT = (
    HEADER
    + """
@triton.jit
def kernel(x0, out, n, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    v = tl.load(x0 + rows * BLOCK + cols)
    tl.store(out + rows * BLOCK + cols, tl.dot(v, v{options}))
"""
)


@pytest.mark.parametrize(("dtype", "options", "low", "high"), [
    ("float32", "", 1e-5, 1e-2), ("float32", ", input_precision='ieee'", 0.0, 1e-6), ("bfloat16", "", 0.0, 1e-2),
])  # fmt: skip
def test_a_dot_has_the_precision_it_asks_for(
    interpreter: Zygote, dtype: str, options: str, low: float, high: float
) -> None:
    x = torch.randn(16, 16).to(getattr(torch, dtype))
    a, out = dense(0, (16, 16), dtype), dense(1, (16, 16), dtype)
    step = launch("kernel", (1, 1, 1), {"BLOCK": 16}, x0=a, out=out, n=16)
    plan = LaunchPlan(buffers_of(a, out, inputs=1), (a,), (step,), (out,))
    answer = run(interpreter, DOT.format(options=options), Execution(plan, (x,)))[0]
    assert isinstance(answer, Executed), answer
    exact = x.double() @ x.double()
    assert (
        low <= ((answer.outputs[0].double() - exact).abs().max() / exact.abs().max()).item() <= high
    )


SCALARS = (
    HEADER
    + """
@triton.jit
def kernel(x0, out, n, flag, alpha, nothing, pair, DTYPE: tl.constexpr, MODE: tl.constexpr):
    cols = tl.arange(0, 8)
    v = tl.load(x0 + cols, mask=cols < n, other=0.0).to(DTYPE)
    v = v * alpha.to(tl.float32) + tl.load(pair[0] + cols, mask=cols < n, other=0.0) * pair[1]
    if flag:
        v = v + 100.0
    if nothing is None and MODE == "add":
        v = v + 1.0
    tl.store(out + cols, v, mask=cols < n)
"""
)


def test_every_kind_of_argument(interpreter: Zygote) -> None:
    x, y, out = dense(0, (5,), "float16", 6), dense(1, (5,), "float32"), dense(2, (5,), "float32")
    arguments = (
        Argument("x0", x, False), Argument("out", out, False), Argument("n", 5, False), Argument("flag", True, False),
        Argument("alpha", 0.5, False), Argument("nothing", None, False), Argument("pair", (y, 2), False),
        Argument("DTYPE", DtypeValue("fp32"), True), Argument("MODE", "add", True),
    )  # fmt: skip
    step = Launch("kernel", (LaunchConfig((1, 1, 1), arguments),))
    plan = LaunchPlan((Buffer(16, 0), Buffer(20, 1), Buffer(20)), (x, y), (step,), (out,))
    a, b = torch.arange(5).half(), torch.arange(5).float()
    answer = run(interpreter, SCALARS, Execution(plan, (a, b)))[0]
    assert isinstance(answer, Executed), answer
    torch.testing.assert_close(answer.outputs[0], 0.5 * a.float() + 2 * b + 101.0)


def test_each_configuration_of_a_launch_can_be_run(interpreter: Zygote) -> None:
    plan = rowwise("kernel", (1, 40), "float32", block=64)
    narrow = rowwise("kernel", (1, 40), "float32", block=32)
    step, other = plan.steps[0], narrow.steps[0]
    assert isinstance(step, Launch) and isinstance(other, Launch)
    both = LaunchPlan(
        plan.buffers, plan.inputs, (Launch("kernel", step.configs + other.configs),), plan.outputs
    )
    x = torch.ones(1, 40)
    answers = run(
        interpreter,
        ROW.format(body="pass", result="v"),
        *(Execution(both, (x,), config=i) for i in range(2)),
    )
    assert [
        answer.outputs[0].isnan().sum().item() for answer in answers if isinstance(answer, Executed)
    ] == [0, 8]
