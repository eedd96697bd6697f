"""Numbers of a kernel that are tensors to the compiler: they are divided and overflow as the
device's do, -7 // 2 is -3 there.
"""

from __future__ import annotations

import pytest
import torch

from referee.interpreter.interpret import Executed, Execution
from referee.interpreter.numbers_as_tensors import RETURNS_NUMBERS
from referee.reading.kernels import extract
from referee.sandbox.zygote import Zygote
from tests.referee.judge.interpreting import ROW, run
from tests.referee.judge.plans import HEADER, rowwise

HELPERS = """
@triton.jit
def seven():
    return -7

@triton.jit
def pair():
    return -7, 2

@triton.jit
def quotient(a, b):
    return a // b

@triton.jit
def kept(a):
    a //= 2
    return a // 2

@triton.jit
def either(n):
    if n > 5:
        return -7
    return 7

@triton.jit
def by_constant(c):
    if c > 5:
        return -7
    else:
        return 7

@triton.jit
def added(a, b):
    k = -7
    return a + b + (k // 2 + 3)
"""

# n is 8, a tensor; BLOCK is 64, a constant. Plain quotients of constants are Python's: -4.
VALUES = {
    "constants": ("pass", "-7 // 2", -4),
    "plain": ("a = -7", "a // 2", -3),
    "in a tuple": ("a, b = -7, 2", "a // b", -3),
    "exchanged": ("a, b = -7, 2\n    a, b = b, a", "b // a", -3),
    "a tuple of its own": ("t = (-7, (2, 3))", "t[0] // t[1][0]", -3),
    "a list": ("t = [-7, 2]", "t[0] // t[1]", -3),
    "annotated": ("a: tl.int32 = -7\n    b: tl.int32 = 2", "a // b", -3),
    "a constant": ("a: tl.constexpr = -7", "a // 2", -4),
    "a constant changed": ("a: tl.constexpr = -7\n    a //= 2", "a * 10 + a // 3", -41),
    "unrolled": ("for i in tl.static_range(1):\n        a = (i - 7) // 2", "a", -4),
    "chosen by a tensor": ("pass", "(-7 if n > 5 else 7) // 2", -3),
    "the other chosen by a tensor": ("pass", "(7 if n < 5 else -7) // 2", -3),
    "chosen by a constant": ("pass", "(-7 if BLOCK > 5 else 7) // 2", -4),
    "chosen by both": ("pass", "(-7 if (n > 5 or BLOCK < 5) else 7) // 2", -3),
    "one is run only": ("pass", "(8 // n) if n > 0 else n // (n - n)", 1),
    "min": ("pass", "min(-7, n) // 2", -3),
    "min of constants": ("pass", "min(-7, BLOCK, 3) // 2", -4),
    "max": ("pass", "max(-7, -n, -9) // 2", -3),
    "max of 32 bits": ("pass", "(max(70000, n) * 50000 > 0).to(tl.int32)", 0),
    "a helper's argument": ("pass", "quotient(-7, 2)", -4),
    "a helper's argument changed": ("pass", "kept(-7)", -2),
    "returned": ("pass", "seven() // 2", -4 if RETURNS_NUMBERS else -3),
    "assigned and returned": ("a, b = pair()", "a // b", -3),
    "returned by a tensor's choice": ("pass", "either(n) // 2", -3),
    "returned by a constant's choice": (
        "pass",
        "by_constant(BLOCK) // 2",
        -4 if RETURNS_NUMBERS else -3,
    ),
    "in a combiner": ("pass", "tl.reduce(mask.to(tl.int32), 0, added)", 8),
}


@pytest.mark.parametrize("name", VALUES)
def test_numbers_are_tensors_where_the_compiler_s_are(interpreter: Zygote, name: str) -> None:
    body, result, expected = VALUES[name]
    text = (
        HEADER + HELPERS + ROW.removeprefix(HEADER).format(body=body, result=f"v * 0 + ({result})")
    )
    answer = run(
        interpreter,
        extract("def run(x): pass\n" + text).text,
        Execution(rowwise("kernel", (1, 8), "float32", block=64), (torch.ones(1, 8),)),
    )[0]
    assert isinstance(answer, Executed), answer
    assert answer.outputs[0].tolist() == [[float(expected)] * 8]
