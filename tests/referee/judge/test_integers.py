"""The CPU path: what no rule determines of integers is nothing to rely on, and no index counts from
the end.
"""

from __future__ import annotations

import pytest

from referee.interpreter.interpret import Executed
from referee.sandbox.zygote import Zygote
from referee.verdict import Rejection
from tests.referee.judge.interpreting import of_four

NUMBERS = [-7, 0, 2, 3]
LEAST = "(x * 0 - 2147483647 - 1)"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x // 2", [-3, 0, 1, 1]),
        ("7 // x", [-1, -1, 3, 2]),
        ("7 % x", [0, -1, 1, 1]),
        ("(7 // x.to(tl.uint32)).to(tl.int32)", [0, -1, 3, 2]),
        ("tl.where(x == 0, 5, 7 // x)", [-1, 5, 3, 2]),
        ("tl.histogram(at + 1, 4, mask=at < 3)", [0, 1, 1, 1]),
        ("tl.gather(x, 3 - at, 0)", [3, 2, 0, -7]),
        ("x << 31", [-(2**31), 0, 0, -(2**31)]),
        ("x >> at", [-7, 0, 0, 0]),
        ("x >> 31", [-1, 0, 0, 0]),
        ("(x.to(tl.uint32) >> 31).to(tl.int32)", [1, 0, 0, 0]),
        ("(x.to(tl.int64) << 33 >> 33).to(tl.int32)", [-7, 0, 2, 3]),
        ("tl.where(at < 2, x << 30 + at, x << at - 2)", [2**30, 0, 2, 6]),
        ("(1e10 + x.to(tl.float32)) % 3.0", [256, 256, 256, 256]),
        ("(x.to(tl.float32) + 7.5) % 4.0 * 2", [1, 7, 3, 5]),
        (
            "(tl.exp(x.to(tl.float32) * 0 + 87.99109649658203) / 1.6369961766588548e38 - 1.0) * 1e7",
            [-38] * 4,
        ),
        ("(x * 0 - 2147483647 - 1) // (at + 1)", [-(2**31), -(2**30), -715827882, -(2**29)]),
        ("-7 // (x * 0 - 1)", [7, 7, 7, 7]),
        ("tl.umulhi(x, x)", [-14, 0, 0, 0]),
        ("tl.umulhi(x.to(tl.int64), x.to(tl.int64)).to(tl.int32)", [-14, 0, 0, 0]),
        (
            "tl.umulhi(x.to(tl.uint32) << 30, x.to(tl.uint32) << 4).to(tl.int32)",
            [1073741796, 0, 16, 36],
        ),
        ("(~x.to(tl.uint8)).to(tl.int32)", [6, 255, 253, 252]),
    ],
)
def test_divisions_and_indices(interpreter: Zygote, value: str, expected: list[int]) -> None:
    found = of_four(interpreter, value, NUMBERS)
    assert isinstance(found, Executed), found
    assert found.outputs[0].tolist() == expected


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("tl.gather(x, at - 1, 0)", "tl.gather has 4 places, and place -1 is outside of them"),
        ("tl.gather(x, at + 1, 0)", "tl.gather has 4 places, and place 4 is outside of them"),
        ("tl.histogram(at + 1, 4)", "tl.histogram has 4 places, and place 4 is outside of them"),
        ("tl.clamp(x.to(tl.float32), 1.0, -1.0)", "tl.clamp has a lower bound above its upper one"),
    ],
)
def test_places_that_are_not_there(interpreter: Zygote, value: str, said: str) -> None:
    found = of_four(interpreter, value, NUMBERS)
    assert (
        isinstance(found, Rejection) and found.guard == "kernel_error" and said in found.reason
    ), found


@pytest.mark.parametrize(
    "value",
    [
        "7 // (x * 0)",
        "7 % (x * 0)",
        "(7 // (x * 0).to(tl.uint32)).to(tl.int32)",
        "(7 % (x * 0).to(tl.uint32)).to(tl.int32)",
        f"{LEAST} // (x * 0 - 1)",
        f"{LEAST} % (x * 0 - 1)",
        "x << at + 32",
        "x >> at + 32",
        "x << at - 4",
        "(x.to(tl.uint32) >> at.to(tl.uint32) + 32).to(tl.int32)",
    ],
)
def test_what_nothing_determines_differs_from_run_to_run(interpreter: Zygote, value: str) -> None:
    once, again = (of_four(interpreter, value, NUMBERS, again=again) for again in (False, True))
    assert isinstance(once, Executed) and isinstance(again, Executed), (once, again)
    assert once.outputs[0].tolist() == [-1, -1, -1, -1]
    assert sorted(again.outputs[0].tolist()) == [-(2**31), 0, 0x55555555, 2**31 - 1]


def test_undetermined_results_differ_in_the_second_run(interpreter: Zygote) -> None:
    """Two results that nothing determines differ from each other in the second run."""
    zero = "tl.sum(x * 0, axis=0)"
    found = of_four(
        interpreter, f"x * 0 + tl.where(7 // {zero} == 8 // {zero}, 1, 2)", NUMBERS, again=True
    )
    assert isinstance(found, Executed) and found.outputs[0].tolist() == [2, 2, 2, 2], found
