"""The CPU path: a float that no integer of the wanted size holds becomes what PTX's `cvt.rzi` makes
of it, and an 8-bit one what `cvt.rn.satfinite` makes of it.
"""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
import torch

from referee.interpreter.formats import from_float8, to_float8
from referee.interpreter.interpret import Executed, Execution
from referee.plans.plan import LaunchPlan
from referee.sandbox.zygote import Zygote
from tests.referee.judge.interpreting import run
from tests.referee.judge.plans import HEADER, buffers_of, dense, launch

VALUES = (300.5, -1.5, 3e9, -3e9, 1e20, inf, -inf, nan)
TOP, BOTTOM = 2**63 - 1, -(2**63)
# In PTX for sm_90 Triton 3.6 and 3.7 convert to 8 bits by way of 16. uint64 is shown as the int64
# of the same bits.
EXPECTED = {
    "int8": (44, -1, -1, 0, -1, -1, 0, 0),
    "uint8": (44, 0, 255, 0, 255, 255, 0, 0),
    "int16": (300, -1, 32767, -32768, 32767, 32767, -32768, 0),
    "uint16": (300, 0, 65535, 0, 65535, 65535, 0, 0),
    "int32": (300, -1, 2**31 - 1, -(2**31), 2**31 - 1, 2**31 - 1, -(2**31), 0),
    "uint32": (300, 0, 3_000_000_000, 0, 2**32 - 1, 2**32 - 1, 0, 0),
    "int64": (300, -1, 3_000_000_000, -3_000_000_000, TOP, TOP, BOTTOM, BOTTOM),
    "uint64": (300, 0, 3_000_000_000, 0, -1, -1, 0, BOTTOM),
}
TEXT = (
    HEADER
    + """
@triton.jit
def kernel(x0, out):
    at = tl.arange(0, 8)
    tl.store(out + at, tl.load(x0 + at).to(tl.{wanted}).to(tl.int64))
"""
)

FLOATS = TEXT.replace(".to(tl.{wanted}).to(tl.int64)", ".to({wanted}).to(tl.float32)")
TIES = (17.0, 19.0, 2.0**-10, -1.0625)


def converted(
    zygote: Zygote, values: torch.Tensor, wanted: str, *, again: bool = False
) -> list[int]:
    x, out = dense(0, (8,), str(values.dtype).removeprefix("torch.")), dense(1, (8,), "int64")
    plan = LaunchPlan(
        buffers_of(x, out, inputs=1),
        (x,),
        (launch("kernel", (1, 1, 1), {}, x0=x, out=out),),
        (out,),
    )
    answer = run(zygote, TEXT.format(wanted=wanted), Execution(plan, (values,), backwards=again))[0]
    assert isinstance(answer, Executed), answer
    return [int(value) for value in answer.outputs[0]]


@pytest.mark.parametrize("wanted", EXPECTED)
def test_floats_that_do_not_fit_are_saturated(interpreter: Zygote, wanted: str) -> None:
    assert converted(interpreter, torch.tensor(VALUES), wanted) == list(EXPECTED[wanted])


@pytest.mark.parametrize("wanted", EXPECTED)
def test_in_the_second_run_only_fitting_floats_stay_equal(interpreter: Zygote, wanted: str) -> None:
    # A compiler that knows such a float makes an unknown value of it.
    once, again = (
        converted(interpreter, torch.tensor(VALUES), wanted, again=again) for again in (False, True)
    )
    limits = torch.iinfo(getattr(torch, wanted))
    fits = [
        limits.min <= int(value) <= limits.max if abs(value) < inf else False for value in VALUES
    ]
    assert [one == other for one, other, fit in zip(once, again, fits, strict=True) if fit] == [
        True
    ] * sum(fits)
    assert (
        sum(one != other for one, other, fit in zip(once, again, fits, strict=True) if not fit) >= 2
    )


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("int8", 0), ("int16", -(2**15)), ("int32", -(2**31)), ("uint32", 2**31)],
)
def test_nan_in_64_bits_becomes_the_highest_bit(
    interpreter: Zygote, wanted: str, expected: int
) -> None:
    assert (
        converted(interpreter, torch.full((8,), nan, dtype=torch.float64), wanted) == [expected] * 8
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_floats_are_saturated_too(interpreter: Zygote, dtype: torch.dtype) -> None:
    values = torch.tensor([inf, -inf, nan, 300.0, -7.5, 0.0, 1.0, -1.0]).to(dtype)
    assert converted(interpreter, values, "int16") == [32767, -32768, 0, 300, -7, 0, 1, -1]


@pytest.mark.parametrize(
    ("wanted", "values", "expected"),
    [
        ("tl.float8e4nv", VALUES, (288.0, -1.5, 448.0, -448.0, 448.0, 448.0, -448.0, nan)),
        ("tl.float8e5", VALUES, (320.0, -1.5, 57344.0, -57344.0, 57344.0, 57344.0, -57344.0, nan)),
        ("tl.float8e4nv", TIES * 2, (16.0, 20.0, 0.0, -1.0) * 2),
        ("tl.float8e5", TIES * 2, (16.0, 20.0, 2.0**-10, -1.0) * 2),
        (
            "tl.float8e5, fp_downcast_rounding='rtz'",
            VALUES,
            (256.0, -1.5, 57344.0, -57344.0, 57344.0, inf, -inf, nan),
        ),
        (
            "tl.float16, fp_downcast_rounding='rtz'",
            VALUES,
            (300.5, -1.5, 65504.0, -65504.0, 65504.0, inf, -inf, nan),
        ),
        (
            "tl.bfloat16, fp_downcast_rounding='rtz'",
            (1.999, -1.999, 3e38, 3.4e38, -inf, 0.0, 0.5, nan),
            None,
        ),
    ],
)
def test_floats_to_narrower_ones(
    interpreter: Zygote, wanted: str, values: tuple[float, ...], expected: tuple[float, ...] | None
) -> None:
    given = torch.tensor(values)
    x, out = dense(0, (8,), "float32"), dense(1, (8,), "float32")
    plan = LaunchPlan(
        buffers_of(x, out, inputs=1),
        (x,),
        (launch("kernel", (1, 1, 1), {}, x0=x, out=out),),
        (out,),
    )
    answer = run(interpreter, FLOATS.format(wanted=wanted), Execution(plan, (given,)))[0]
    assert isinstance(answer, Executed), answer
    # Of bfloat16 towards zero: the first half of the bits.
    cut = (given.view(torch.int32) & -65536).view(torch.float32)
    torch.testing.assert_close(
        answer.outputs[0],
        cut if expected is None else torch.tensor(expected),
        rtol=0,
        atol=0,
        equal_nan=True,
    )


def test_every_eight_bit_float_is_read_and_written_as_it_is() -> None:
    bits = np.arange(256, dtype=np.uint8)
    for kind in ("float8_e4m3fn", "float8_e5m2"):
        values = from_float8(bits, kind)
        finite = np.isfinite(values)
        assert to_float8(values, kind)[finite].tolist() == bits[finite].tolist()
        assert finite.sum() == (254 if kind == "float8_e4m3fn" else 248)
