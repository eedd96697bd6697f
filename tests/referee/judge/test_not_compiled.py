"""The CPU path: what the compiler refuses is refused where the interpreter comes to it, and a loop
counts in the compiler's type.
"""

from __future__ import annotations

import pytest
import torch
import triton

from referee.interpreter.interpret import Executed, Execution
from referee.sandbox.zygote import Zygote
from referee.verdict import Rejection
from referee.versions import facts
from tests.referee.judge.interpreting import ROW, run
from tests.referee.judge.plans import rowwise


def ran(zygote: Zygote, body: str, result: str = "v") -> Executed | Rejection:
    """What comes of it for a row of eight ones; `n` is 8."""
    plan = rowwise("kernel", (1, 8), "float32", block=8)
    return run(zygote, ROW.format(body=body, result=result), Execution(plan, (torch.ones(1, 8),)))[
        0
    ]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("if mask:\n        v = v + 1", "a block cannot decide a branch"),
        ("v = v + 1 if v > 0 else v", "a block cannot decide a branch"),
        ("while v < 3:\n        v = v + 1", "a block cannot decide a branch"),
        ("if mask and n > 3:\n        v = v + 1", "a block cannot decide a branch"),
        ("for i in range(0, n * 1.0):\n        v = v + 1", "must all be ints"),
    ],
)
def test_what_no_compiler_takes_fails(interpreter: Zygote, body: str, said: str) -> None:
    found = ran(interpreter, body)
    assert isinstance(found, Rejection) and found.guard == "kernel_error" and said in found.reason


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        ("0 <= cols < n", [1.0] * 8),
        ("1 <= cols < 4 < n", [0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]),
        ("0 < n != 8", [0.0] * 8),
        ("8 < BLOCK < cols", [0.0] * 8),
        ("4 < BLOCK > cols > 5", [0.0] * 6 + [1.0] * 2),
    ],
)
def test_chains_compare_where_triton_compiles_them(
    interpreter: Zygote, chain: str, expected: list[float]
) -> None:
    found = ran(interpreter, f"v = tl.where({chain}, v, 0.0)")
    if facts(triton.__version__).chained_comparisons:
        assert isinstance(found, Executed), found
        assert found.outputs[0].tolist() == [expected]
    else:
        assert isinstance(found, Rejection) and found.guard == "kernel_error"
        assert "simultaneous multiple comparison" in found.reason


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("if n > 3 and BLOCK > 3:\n        v = v + 1", 2.0),
        ("if tl.max(v, 0) > 0:\n        v = v + 1", 2.0),
        ("if tl.max(v[None, :], 1, keep_dims=True) > 0:\n        v = v + 1", 2.0),
        ("if BLOCK < 4:\n        v = tl.where(0 <= cols < n, v, 0.0)", 1.0),
        ("v = v + 1 if n > 3 else v", 2.0),
    ],
)
def test_numbers_decide_and_what_is_not_reached_is_not_refused(
    interpreter: Zygote, body: str, expected: float
) -> None:
    found = ran(interpreter, body)
    assert isinstance(found, Executed), found
    assert found.outputs[0].tolist() == [[expected] * 8]


@pytest.mark.parametrize(
    ("bounds", "unsigned", "bits"),
    [
        ("0, n", False, 32),
        ("3", False, 32),
        ("0, n.to(tl.uint32)", True, 32),
        ("0, n.to(tl.uint8)", False, 32),
        ("n.to(tl.uint8), n.to(tl.uint8) + n.to(tl.uint8), tl.full((), 1, tl.uint8)", True, 8),
        ("0, n.to(tl.int64)", False, 64),
        ("0, n, n.to(tl.uint64)", True, 64),
        ("2147483648, 2147483649", True, 32),
        ("0, 4294967296, 2147483648", False, 64),
    ],
)
def test_a_loop_counts_in_the_type_of_its_bounds(
    interpreter: Zygote, bounds: str, unsigned: bool, bits: int
) -> None:
    body = f"kind = 0.0\n    for i in range({bounds}):\n        kind = i.dtype.is_int_unsigned() * 1000.0 + i.dtype.int_bitwidth"
    found = ran(interpreter, body, "v * 0 + kind")
    assert isinstance(found, Executed), found
    assert found.outputs[0][0, 0].item() == unsigned * 1000.0 + bits
