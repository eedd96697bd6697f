"""The CPU path: booleans are numbers of one bit, as in compiled code (`arith.addi : i1`)."""

from __future__ import annotations

import pytest

from referee.interpreter.interpret import Executed
from referee.sandbox.zygote import Zygote
from tests.referee.judge.interpreting import of_four


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a + b", [0, 0, 1, 0]),
        ("a - b", [0, 0, 1, 0]),
        ("-a", [0, 1, 1, 1]),
        ("a + True", [1, 0, 0, 0]),
        ("a * b", [0, 1, 0, 1]),
        ("a + b.to(tl.int32)", [0, 2, 1, 2]),
        ("tl.load(x0 + at, mask=a & (tl.program_id(0) == 0), other=9)", [9, 1, 2, 3]),
        ("tl.load(x0 + at, mask=(tl.program_id(0) > 0) | b, other=9)", [9, 1, 9, 3]),
        ("tl.sum(a, 0) + at * 0", [3, 3, 3, 3]),
        ("tl.reduce(b, 0, tl.standard._sum_combine) + at * 0", [0, 0, 0, 0]),
    ],
)
def test_booleans_are_added_in_one_bit(
    interpreter: Zygote, value: str, expected: list[int]
) -> None:
    answer = of_four(interpreter, value, [0, 1, 2, 3])
    assert isinstance(answer, Executed), answer
    assert answer.outputs[0].tolist() == expected
