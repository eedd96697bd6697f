"""The CPU path: a combiner is given two numbers, as by the compiler, however many pairs are
combined at once, and may branch.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from referee.interpreter.interpret import Executed, Execution
from referee.reading.kernels import extract
from referee.sandbox.zygote import Zygote
from tests.referee.judge.interpreting import ROW, run
from tests.referee.judge.plans import HEADER, rowwise

N = 64
X = torch.randn(3, N, generator=torch.Generator().manual_seed(3))

COMBINERS = """
@triton.jit
def greater(a, b):
    return a > b

@triton.jit
def by_branch(a, b):
    r = a
    if greater(b, a):
        r = b
    return r

@triton.jit
def by_return(a, b):
    if a > b:
        return a
    else:
        return b

@triton.jit
def by_choice(a, b):
    return a if a > b else b

@triton.jit
def first_of_largest(a, i, b, j):
    if a > b or (a == b and i < j):
        r, k = a, i
    elif a == b:
        r, k = b, j
    else:
        r, k = b, j
    return r, k

@triton.jit
def by_loop(a, b):
    count = (a * 0).to(tl.int32)
    while count < (tl.abs(b) * 4).to(tl.int32):
        count += 1
    return a + b + (count - (tl.abs(b) * 4).to(tl.int32)).to(tl.float32)

@triton.jit
def of_constants(a, b):
    r = 1.0
    if a + b > 1000.0:
        r = 2.0
    return r

@triton.jit
def of_numbers(a, b):
    r = a + b
    if a.type.is_block():
        r = a * 0
    if len(a.shape) > 0:
        r = a * 0
    return r

@triton.jit
def last_above(a, b):
    return b if b > 0.5 else a

@triton.jit
def halved(a, b):
    return (a + b) * 0.5
"""


def _last_above(row: torch.Tensor) -> torch.Tensor:
    found = [row[0]]
    for value in row[1:]:
        found.append(value if value > 0.5 else found[-1])
    return torch.stack(found)


RIGHT = {
    "branch": ("s = tl.reduce(v, 0, by_branch)", "v * 0 + s", X.amax(1, keepdim=True)),
    "return": ("s = tl.reduce(v, 0, by_return)", "v * 0 + s", X.amax(1, keepdim=True)),
    "choice": ("s = tl.reduce(v, 0, by_choice)", "v * 0 + s", X.amax(1, keepdim=True)),
    "of one axis": (
        "s = tl.reduce(tl.reshape(v, (8, 8)), 1, by_branch, keep_dims=True)",
        "tl.reshape(tl.broadcast_to(s, (8, 8)), (BLOCK,))",
        X.reshape(3, 8, 8).amax(2).repeat_interleave(8, 1),
    ),
    "two results": (
        "top, s = tl.reduce((v, cols), 0, first_of_largest)",
        "v * 0 + s",
        X.argmax(1, keepdim=True).float(),
    ),
    "two results and ties": (
        "top, s = tl.reduce((v * 0, cols + 5), 0, first_of_largest)",
        "v * 0 + s",
        torch.full((3, 1), 5.0),
    ),
    "loop": ("s = tl.reduce(v, 0, by_loop)", "v * 0 + s", X.sum(1, keepdim=True)),
    "constants": ("s = tl.reduce(v, 0, of_constants)", "v * 0 + s", torch.full((3, 1), 1.0)),
    "numbers": ("s = tl.reduce(v, 0, of_numbers)", "v * 0 + s", X.sum(1, keepdim=True)),
    "numbers scanned": ("pass", "tl.associative_scan(v, 0, of_numbers)", X.cumsum(1)),
    "scan": (
        "pass",
        "tl.associative_scan(v, 0, last_above)",
        torch.stack([_last_above(row) for row in X]),
    ),
}


def combined(
    zygote: Zygote, body: str, result: str, *, relaxed: bool, x: torch.Tensor = X
) -> torch.Tensor:
    """What a kernel makes of rows."""
    plan = rowwise("kernel", (3, N), str(x.dtype).removeprefix("torch."), block=N)
    text = extract(
        "def run(x): pass\n"
        + HEADER
        + COMBINERS
        + ROW.removeprefix(HEADER).format(body=body, result=result)
    ).text
    (answer,) = run(zygote, text, Execution(plan, (x,), relaxed=relaxed))
    assert isinstance(answer, Executed), answer
    return answer.outputs[0]


@pytest.mark.parametrize("relaxed", [False, True])
@pytest.mark.parametrize("name", RIGHT)
def test_each_pair_goes_its_own_way(interpreter: Zygote, name: str, relaxed: bool) -> None:
    body, result, expected = RIGHT[name]
    torch.testing.assert_close(
        combined(interpreter, body, result, relaxed=relaxed),
        expected.expand(3, N),
        rtol=1e-5,
        atol=1e-5,
    )


def test_elements_are_combined_one_after_the_other_too(interpreter: Zygote) -> None:
    # A mean of means is the mean where all are of as many elements, and of no others.
    body = "s = tl.reduce(v, 0, halved)"
    balanced, other = (
        combined(interpreter, body, "v * 0 + s", relaxed=relaxed)[:, 0] for relaxed in (False, True)
    )
    torch.testing.assert_close(balanced, X.mean(1))
    assert ((other - X.mean(1)).abs() > 1e-2).all()


def test_a_product_in_float16_is_rounded_after_every_sixteen(interpreter: Zygote) -> None:
    body = "a = tl.broadcast_to(v[None, :], (16, BLOCK))"
    total = "tl.max(tl.dot(a, tl.full((BLOCK, 16), 1.0, tl.float16), out_dtype=tl.float16))"
    x = torch.full((3, N), 0.125, dtype=torch.float16)
    x[:, 0] = 4096.0
    once, often = (
        combined(interpreter, body, f"v * 0 + {total}", relaxed=relaxed, x=x)[0, 0].item()
        for relaxed in (False, True)
    )
    # In steps of 4: 4103.875 is nearest to 4104, and 4096 + 2 goes to even.
    assert (once, often) == (4104.0, 4096.0)


def test_a_root_may_be_off_by_a_unit_where_it_is_not_exact(interpreter: Zygote) -> None:
    x = torch.arange(3 * N, dtype=torch.float32).reshape(3, N)
    x[0, 1:3] = torch.tensor([torch.inf, torch.nan])
    plain, other = (
        combined(interpreter, "pass", "tl.sqrt(v)", relaxed=relaxed, x=x)
        for relaxed in (False, True)
    )
    # NumPy's, which is the nearest: torch's is not always.
    nearest = torch.from_numpy(np.sqrt(x.numpy()))
    exact = (nearest.double() ** 2 == x) | ~x.isfinite()
    torch.testing.assert_close(plain, nearest, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(other[exact], plain[exact], rtol=0, atol=0, equal_nan=True)
    assert torch.equal(other[~exact], torch.nextafter(plain[~exact], torch.tensor(torch.inf)))
    for rounded in (
        combined(interpreter, "pass", "tl.sqrt_rn(v)", relaxed=relaxed, x=x)
        for relaxed in (False, True)
    ):
        torch.testing.assert_close(rounded, plain, rtol=0, atol=0, equal_nan=True)
