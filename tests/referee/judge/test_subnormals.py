"""The CPU path: subnormal numbers are zero to what flushes them, as PTX of Triton 3.6 and 3.7 for
sm_90 does, and to nothing else.
"""

from __future__ import annotations

from math import inf

import pytest
import torch

from referee.interpreter.interpret import Executed, Execution
from referee.sandbox.zygote import Zygote
from tests.referee.judge.interpreting import ROW, run
from tests.referee.judge.plans import rowwise

TINY = 1e-40


@pytest.mark.parametrize(
    ("result", "given", "expected"),
    [
        ("tl.exp2(v)", -140.0, 0.0),
        ("tl.exp2(v)", -126.0, 2.0**-126),
        ("tl.sqrt(v)", TINY, 0.0),
        ("tl.sqrt(v)", -TINY, 0.0),
        ("tl.rsqrt(v)", TINY, inf),
        ("tl.rsqrt(v)", -TINY, -inf),
        ("tl.sin(v)", TINY, 0.0),
        ("tl.erf(v)", TINY, 0.0),
        ("tl.ceil(v)", TINY, 0.0),
        ("tl.floor(v)", -TINY, 0.0),
        ("libdevice.exp2(v)", -140.0, 0.0),
        ("libdevice.rsqrt(v)", TINY, inf),
        ("libdevice.add_rn(v, v)", TINY, 0.0),
        ("libdevice.mul_rn(v, v)", 1e-20, 0.0),
        ("libdevice.ceil(v)", TINY, 0.0),
        ("libdevice.abs(v)", TINY, 0.0),
        ("tl.exp(v)", -100.0, 3.8e-44),
        ("v + v", TINY, 2 * TINY),
        ("v / 2", TINY, TINY / 2),
        ("tl.abs(v)", TINY, TINY),
        ("tl.log2(v) / 132.8771", TINY, -1.0),
        ("tl.sqrt_rn(v)", TINY, 1e-20),
        ("libdevice.trunc(v + 1.5)", TINY, 1.0),
    ],
)
def test_subnormal_numbers(interpreter: Zygote, result: str, given: float, expected: float) -> None:
    text = ROW.replace("as tl\n", "as tl\nfrom triton.language.extra import libdevice\n", 1).format(
        body="pass", result=result
    )
    execution = Execution(
        rowwise("kernel", (1, 8), "float32", block=8), (torch.full((1, 8), given),)
    )
    (answer,) = run(interpreter, text, execution)
    assert isinstance(answer, Executed), answer
    torch.testing.assert_close(
        answer.outputs[0], torch.full((1, 8), expected), rtol=1e-4, atol=1e-45
    )
