"""The CPU path: an integer divided by zero is nothing to rely on, and no index counts from the end."""

from __future__ import annotations

import pytest

from referee.interpret import Executed
from referee.verdict import Rejection
from referee.zygote import Zygote
from tests.referee.judge.interpreting import of_four

NUMBERS = [-7, 0, 2, 3]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x // 2", [-3, 0, 1, 1]),
        ("7 // x", [-1, -1, 3, 2]),
        ("7 % x", [0, -1, 1, 1]),
        ("(7 // x.to(tl.uint32)).to(tl.int32)", [0, -1, 3, 2]),
        ("tl.where(x == 0, 5, 7 // x)", [-1, 5, 3, 2]),
        ("tl.gather(x, 3 - at, 0)", [3, 2, 0, -7]),
    ],
)
def test_divisions_and_indices(interpreter: Zygote, value: str, expected: list[int]) -> None:
    found = of_four(interpreter, value, NUMBERS)
    assert isinstance(found, Executed), found
    assert found.outputs[0].tolist() == expected


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("tl.gather(x, at - 1, 0)", "tl.gather has 4 places, and place -1 is asked for"),
        ("tl.gather(x, at + 1, 0)", "tl.gather has 4 places, and place 4 is asked for"),
        ("tl.histogram(at + 1, 4)", "tl.histogram has 4 places, and place 4 is asked for"),
    ],
)
def test_places_that_are_not_there(interpreter: Zygote, value: str, said: str) -> None:
    found = of_four(interpreter, value, NUMBERS)
    assert isinstance(found, Rejection) and found.guard == "kernel_error" and said in found.reason, found
