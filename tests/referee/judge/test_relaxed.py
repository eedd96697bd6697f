"""The CPU path: what is left open to a compiler is done in one way or another, and a kernel must be
right either way.
"""

from __future__ import annotations

import pytest
import torch

from referee import Referee
from referee.cases import CaseData
from referee.cpu_path import CpuPath
from referee.interpreter.interpret import Executed, Execution
from referee.problem import Problem
from referee.reading.kernels import extract
from referee.sandbox.zygote import Zygote
from referee.target import Target
from referee.tracing.trace import trace
from tests.referee.judge.interpreting import ROW, run
from tests.referee.judge.plans import HEADER, rowwise
from tests.referee.stand_in import Servers

N = 64
X = torch.randn(3, N, generator=torch.Generator().manual_seed(7))

COMBINERS = """
@triton.jit
def added(a, b):
    return a + b

@triton.jit
def larger(a, b):
    return tl.maximum(a, b)

@triton.jit
def smaller(a, b):
    return tl.minimum(a, b)

@triton.jit
def welford(mean1, m1, n1, mean2, m2, n2):
    delta = mean2 - mean1
    n = n1 + n2
    return mean1 + delta * (n2 / n), m1 + m2 + delta * delta * (n1 * n2 / n), n

@triton.jit
def argmax(a, i, b, j):
    first = (a > b) | ((a == b) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)

@triton.jit
def online(m1, s1, m2, s2):
    m = tl.maximum(m1, m2)
    return m, s1 * tl.exp(m1 - m) + s2 * tl.exp(m2 - m)

@triton.jit
def affine(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2

@triton.jit
def joined(low1, high1, sum1, low2, high2, sum2):
    near = high1 + 1 == low2
    return low1, high2, sum1 + tl.where(near, sum2, 1000.0)

@triton.jit
def halves(a, i, b, j):
    return a + tl.where(j > i, b, 0.0) * tl.where((j - i) & (j - i - 1) == 0, 1.0, 0.0), i
"""


def both(zygote: Zygote, body: str, result: str, x: torch.Tensor = X) -> list[torch.Tensor]:
    """What a kernel makes of rows, in one way and in the other."""
    plan = rowwise("kernel", (3, N), str(x.dtype).removeprefix("torch."), block=N)
    text = HEADER + COMBINERS + ROW.removeprefix(HEADER).format(body=body, result=result)
    outputs = []
    for relaxed in (False, True):
        (answer,) = run(zygote, text, Execution(plan, (x,), relaxed=relaxed))
        assert isinstance(answer, Executed), answer
        outputs.append(answer.outputs[0])
    return outputs


def states(x: torch.Tensor) -> torch.Tensor:
    """What `affine` scans to: the states of a linear recurrence with factor 0.9."""
    columns = [x[:, 0]]
    for column in range(1, x.shape[1]):
        columns.append(0.9 * columns[-1] + x[:, column])
    return torch.stack(columns, 1)


RIGHT = {
    "sum": ("s = tl.sum(v, 0)", "v * 0 + s", X.sum(1, keepdim=True)),
    "max": ("s = tl.max(v, 0)", "v * 0 + s", X.amax(1, keepdim=True)),
    "argmax": ("s = tl.argmax(v, 0)", "v * 0 + s", X.argmax(1, keepdim=True).float()),
    "argmin with ties": (
        "s = tl.argmin(tl.where(cols % 8 == 5, 0.0, 1.0), 0)",
        "v * 0 + s",
        torch.full((3, 1), 5.0),
    ),
    "of all": (
        "s = tl.reduce(tl.reshape(v, (8, 8)), None, added)",
        "v * 0 + s",
        X.sum(1, keepdim=True),
    ),
    "of one axis": (
        "s = tl.sum(tl.reshape(v, (8, 8)), 1, keep_dims=True)",
        "tl.reshape(tl.broadcast_to(s, (8, 8)), (BLOCK,))",
        X.reshape(3, 8, 8).sum(2).repeat_interleave(8, 1),
    ),
    "welford": (
        "mean, m, count = tl.reduce((v, v * 0, v * 0 + 1), 0, welford)",
        "v * 0 + m / count",
        X.var(1, correction=0, keepdim=True),
    ),
    "own argmax": (
        "top, s = tl.reduce((v, cols), 0, argmax)",
        "v * 0 + s",
        X.argmax(1, keepdim=True).float(),
    ),
    "online softmax": (
        "m, s = tl.reduce((v, v * 0 + 1), 0, online)",
        "tl.exp(v - m) / s",
        X.softmax(1),
    ),
    "cumsum": ("pass", "tl.cumsum(v, 0)", X.cumsum(1)),
    "cumsum of one axis": (
        "w = tl.cumsum(tl.reshape(v, (8, 8)), 0)",
        "tl.reshape(w, (BLOCK,))",
        X.reshape(3, 8, 8).cumsum(1).reshape(3, N),
    ),
    "cumsum from the end": ("pass", "tl.cumsum(v, 0, reverse=True)", X.flip(1).cumsum(1).flip(1)),
    "recurrence": ("a, b = tl.associative_scan((v * 0 + 0.9, v), 0, affine)", "b", states(X)),
    "intervals": (
        "low, high, s = tl.associative_scan((cols, cols, v), 0, joined)",
        "s",
        X.cumsum(1),
    ),
    "sort": ("pass", "tl.sort(v)", X.sort(1).values),
}


@pytest.mark.parametrize("name", RIGHT)
def test_honest_combiners_are_right_either_way(interpreter: Zygote, name: str) -> None:
    body, result, expected = RIGHT[name]
    for found in both(interpreter, body, result):
        torch.testing.assert_close(found, expected.expand(3, N), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("word", "dtype"),
    # Of bfloat16 Triton takes the extrema in float32, and no combiner may return what it is not
    # given.
    [
        *(
            (word, dtype)
            for word in ("sum", "max", "min")
            for dtype in (torch.float32, torch.float16)
        ),
        ("sum", torch.bfloat16),
    ],
)
def test_tritons_own_combiners_give_their_bits(
    interpreter: Zygote, word: str, dtype: torch.dtype
) -> None:
    x = X.clone()
    x[0, 9], x[1], x[2, 5], x[2, 40] = torch.nan, -0.0, torch.inf, -torch.inf
    combiner = {"sum": "added", "max": "larger", "min": "smaller"}[word]
    own = both(
        interpreter, f"s = tl.reduce(v, 0, {combiner})", "tl.where(mask, s, 0.0)", x.to(dtype)
    )
    tritons = both(interpreter, f"s = tl.{word}(v, 0)", "tl.where(mask, s, 0.0)", x.to(dtype))
    for one, other in zip(tritons, own, strict=True):
        assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))


@pytest.mark.parametrize(
    ("body", "result", "expected"),
    [
        ("s, i = tl.reduce((v, cols), 0, halves)", "v * 0 + s", X.sum(1, keepdim=True)),
        ("s, i = tl.associative_scan((v, cols), 0, halves)", "s", X.cumsum(1)),
    ],
)
def test_a_combiner_of_one_tree_is_found(
    interpreter: Zygote, body: str, result: str, expected: torch.Tensor
) -> None:
    found = both(interpreter, body, result)
    assert not all(
        torch.allclose(output, expected.expand(3, N), rtol=1e-3, atol=1e-3) for output in found
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "result", ["v * w - v * w", "(v * w)[None, :].reshape((BLOCK,)) - v * w", "-(v * w) + v * w"]
)
def test_products_are_added_rounded_and_unrounded(
    interpreter: Zygote, dtype: torch.dtype, result: str
) -> None:
    x = X.to(dtype)
    rounded, unrounded = both(interpreter, "w = v + v * 0.3", result, x)
    assert rounded.count_nonzero() == 0
    assert unrounded.count_nonzero() > 50
    assert (unrounded.abs() <= x.square() * 1.3 * torch.finfo(dtype).eps).all()


@pytest.mark.parametrize(
    "product",
    [
        "tl.max(tl.broadcast_to((v * w)[None, :], (2, BLOCK)) - tl.broadcast_to((0.0 + v * w)[None, :], (2, BLOCK)), 0)",
        "tl.reshape(tl.trans((v * w)[:, None]) - (0.0 + v * w)[None, :], (BLOCK,))",
        "m * 1.3 - (v - v + m * 1.3)",
    ],
)
def test_shapes_change_no_product(interpreter: Zygote, product: str) -> None:
    rounded, unrounded = both(interpreter, "w = v + v * 0.3\n    m = tl.max(v, 0)", product)
    assert rounded.count_nonzero() == 0 and unrounded.count_nonzero() > 50


def test_quotients_and_sums_are_the_same_either_way(interpreter: Zygote) -> None:
    one, other = both(interpreter, "w = v / 3", "(w + v) - (w + v) + w * 2")
    assert torch.equal(one, other)


def test_fma_rounds_once(interpreter: Zygote) -> None:
    for found in both(interpreter, "w = v * 1.3", "tl.fma(v, w, -(v * w))"):
        assert found.count_nonzero() > 50


KERNEL = """
@triton.jit
def _kernel(x_ptr, w_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    {body}
    tl.store(out_ptr + row * N + cols, y, mask=mask)


def run(x, w):
    M, N = x.shape
    out = torch.empty_like(x)
    _kernel[(M,)](x, w, out, N, BLOCK=triton.next_power_of_2(N))
    return out
"""
SCALED = "ms = tl.sum(x * x, 0) / N\n    r = tl.rsqrt(ms + 1e-6)\n    y = x * r * w"


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("body", "guard"),
    [
        (SCALED, None),
        ("ms = tl.reduce(x * x, 0, added) / N\n    y = x * tl.rsqrt(ms + 1e-6) * w", None),
        (SCALED + "\n    y = tl.where((cols < 32) & ((1 << cols) == 0), 0.0, y)", None),
        (
            "s, i = tl.reduce((x * x, cols), 0, halves)\n    y = x * tl.rsqrt(s / N + 1e-6) * w",
            "wrong_answer",
        ),
        (SCALED + "\n    y = tl.where(x * r - x * r == 0, y, 0.0)", "wrong_answer"),
        (SCALED + "\n    y = tl.where((row * 0 + 1) << (32 + N * 0) == 0, y, 0.0)", "wrong_answer"),
        (
            SCALED + "\n    y = tl.where((row * 0 - 2147483647 - 1) // (row * 0 - 1) < 0, y, 0.0)",
            "not_deterministic",
        ),
        (
            SCALED
            + "\n    y = tl.where((x * 0 + 1000.0).to(tl.float8e4nv).to(tl.float32) == 448.0, 0.0, y)",
            "wrong_answer",
        ),
        (SCALED + "\n    y = tl.where(tl.exp2(ms * 0 - 140.0) > 0, y, 0.0)", "wrong_answer"),
    ],
)
def test_what_only_the_interpreter_gets_right_is_not_correct(
    referee: Referee, body: str, guard: str | None
) -> None:
    verdict = referee.judge(COMBINERS + KERNEL.format(body=body), "rmsnorm")
    assert (verdict.verdict, verdict.guard) == (
        ("rejected", guard) if guard else ("correct", None)
    ), verdict.reason


def test_a_cell_of_a_dtype_runs_both_ways_whatever_the_seed(servers: Servers) -> None:
    source = KERNEL.format(body=SCALED + "\n    y = tl.where(x * r - x * r == 0, y, 0.0)")
    problem, module = Problem("rmsnorm"), extract(source)
    cell = problem.cells("cpu")[0]
    plans = trace(servers.workers, source, [cell], Target(), module)
    assert isinstance(plans, tuple)
    told = set()
    for seed in range(8):
        path = CpuPath(
            workers=servers.interpreters,
            data=CaseData(problem.task("cpu"), seed),
            text=module.text,
            atomic=False,
        )
        _, found = path.required([(cell, plans[0])])
        assert found and found.guard == "wrong_answer"
        told.add("with products added unrounded" in found.reason)
    assert told == {True, False}
