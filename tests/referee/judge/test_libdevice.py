"""libdevice in the interpreter: every function that a kernel may name is there, and gives what
CUDA's documentation says.
"""

from __future__ import annotations

import inspect
import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from triton.language.extra.cuda import libdevice

from referee.interpreter.interpret import Executed, Execution
from referee.interpreter.libdevice import float_function
from referee.interpreter.libdevice_bits import bits_function
from referee.reading.kernel_vocabulary import LIBDEVICE
from referee.sandbox.zygote import Zygote
from tests.referee.judge.interpreting import ROW, run
from tests.referee.judge.plans import rowwise

I32, U32, I64, U64, F32, F64 = np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64
HIGH, LOW = 2**31 - 1, -(2**31)


def symbols(name: str) -> list[str]:
    return re.findall(r'"__nv_(\w+)"', inspect.getsource(getattr(libdevice, name)))


def test_every_function_that_a_kernel_may_name_is_there() -> None:
    for name in sorted(LIBDEVICE & set(vars(libdevice))):
        assert symbols(name), name
        for symbol in symbols(name):
            assert bits_function(symbol) or float_function(symbol), symbol


@pytest.mark.parametrize(
    ("name", "dtype", "given", "expected"),
    [
        ("clz", I32, [[0, 1, -1, HIGH]], [32, 31, 0, 1]),
        ("clzll", I32, [np.array([0, 1, -1], I64)], [64, 63, 0]),
        ("popc", I32, [[0, 7, -1]], [0, 3, 32]),
        ("brev", I32, [[1, 0, -1, 2]], [LOW, 0, -1, 1 << 30]),
        ("ffs", I32, [[0, 1, 8, LOW]], [0, 1, 4, 32]),
        ("abs", I32, [[-3, 3, LOW]], [3, 3, LOW]),
        ("mulhi", I32, [[HIGH, LOW, -1], [HIGH, 2, 1]], [HIGH // 2, -1, -1]),
        ("umulhi", U32, [np.array([2**32 - 1], U32), np.array([2], U32)], [1]),
        ("mul64hi", I64, [np.array([2**62], I64), np.array([4], I64)], [1]),
        ("mul24", I32, [[0x7FFFFF, 0x800000, 0x1000003], [2, 1, 5]], [0xFFFFFE, -0x800000, 15]),
        ("hadd", I32, [[HIGH, -3], [HIGH, 0]], [HIGH, -2]),
        ("rhadd", I32, [[HIGH, -3], [HIGH, 0]], [HIGH, -1]),
        ("sad", I32, [[3, -5], [10, 5], [1, 2]], [8, 12]),
        (
            "float2int_rn",
            I32,
            [np.array([2.5, -2.5, 3.5, 1e20, -1e20, np.nan], F32)],
            [2, -2, 4, HIGH, LOW, 0],
        ),
        ("float2int_rz", I32, [np.array([2.9, -2.9], F32)], [2, -2]),
        ("float2int_rd", I32, [np.array([2.9, -2.1], F32)], [2, -3]),
        ("float2uint_ru", U32, [np.array([2.1, -2.1, 1e20], F32)], [3, 0, 2**32 - 1]),
        (
            "double2ll_rn",
            I64,
            [np.array([2.0**62, 2.0**63, -(2.0**63), -1e30], F64)],
            [2**62, 2**63 - 1, -(2**63), -(2**63)],
        ),
        ("double2ull_rz", U64, [np.array([2.0**63, 2.0**64, -1.0], F64)], [2**63, 2**64 - 1, 0]),
        ("float_as_int", I32, [np.array([1.0, -0.0], F32)], [0x3F800000, LOW]),
        ("int_as_float", F32, [[0x40000000]], [2.0]),
        (
            "hiloint2double",
            F64,
            [[0x3FF00000, -0x40100000], [0, -1]],
            [1.0, -1.0 - 2.0**-20 + 2.0**-52],
        ),
        ("double2hiint", I32, [np.array([1.0], F64)], [0x3FF00000]),
        ("double2loint", I32, [np.array([math.pi], F64)], [0x54442D18]),
        ("ilogb", I32, [np.array([1.0, 0.75, 1024.0, 0.0, np.inf], F64)], [0, -1, 10, LOW, HIGH]),
        ("llround", I64, [np.array([2.5, -2.5, 0.4], F64)], [3, -3, 0]),
        ("llrint", I64, [np.array([2.5, -2.5], F64)], [2, -2]),
        ("nextafterf", F32, [np.array([1.0], F32), np.array([2.0], F32)], [1.0 + 2.0**-23]),
    ],
)
def test_bits_and_integers(name: str, dtype: Any, given: list[Any], expected: list[Any]) -> None:
    function = bits_function(name)
    assert function is not None
    found = function(
        *(np.asarray(values, None if isinstance(values, np.ndarray) else I32) for values in given),
        dtype,
    )
    assert found.astype(dtype).tolist() == expected


@pytest.mark.parametrize("direction", "nzdu")
@pytest.mark.parametrize("sign", [1, -1])
def test_conversions_to_floats_round_as_their_names_say(direction: str, sign: int) -> None:
    values = np.array([2**24 + 1, 2**24 + 3, 2**62 + 1, 5], I64) * sign
    function = bits_function(f"ll2float_r{direction}")
    assert function is not None
    for value, found in zip(values.tolist(), function(values, F32).tolist(), strict=True):
        below, above = (
            Fraction(float(np.nextafter(F32(found), F32(end)))) for end in (-np.inf, np.inf)
        )
        exact = Fraction(found)
        if direction == "n":
            assert abs(exact - value) <= min(abs(below - value), abs(above - value))
        elif direction == "d" or (direction == "z" and value > 0):
            assert exact <= value < above
        else:
            assert below < value <= exact


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("j0f", [1.0], 0.7651976865579666),
        ("j1", [1.0], 0.4400505857449335),
        ("y0", [1.0], 0.08825696421567697),
        ("y1f", [1.0], -0.7812128213002887),
        ("cyl_bessel_i0f", [1.0], 1.2660658777520084),
        ("cyl_bessel_i1f", [1.0], 0.5651591039924851),
        ("erfinvf", [0.5], 0.4769362762044699),
        ("erfcinvf", [0.5], 0.4769362762044699),
        ("erfcinv", [1e-30], 8.148616223169864),
        ("erfcxf", [1.0], 0.427583576155807),
        ("normcdfinvf", [0.975], 1.959963984540054),
        ("lgammaf", [10.5], math.lgamma(10.5)),
        ("tgammaf", [4.5], math.gamma(4.5)),
        ("tgamma", [0.0], math.inf),
        ("tgamma", [-1.0], math.nan),
        ("tgamma", [1e3], math.inf),
        ("remainderf", [5.5, 2.0], -0.5),
        ("remainder", [math.inf, 2.0], math.nan),
        ("logbf", [10.0], 3.0),
        ("logb", [0.0], -math.inf),
        ("norm3df", [1.0, 2.0, 2.0], 3.0),
        ("rnorm4d", [1.0, 1.0, 1.0, 1.0], 0.5),
        ("fdiv_rn", [1.0, 4.0], 0.25),
        ("dadd_rn", [1.0, 4.0], 5.0),
        ("fmaf_rn", [2.0, 3.0, 4.0], 10.0),
        ("frsqrt_rn", [4.0], 0.5),
        ("frcp_rn", [4.0], 0.25),
        ("fast_fdividef", [1.0, 4.0], 0.25),
        ("fast_log2f", [8.0], 3.0),
        ("signbitd", [-0.0], 1.0),
    ],
)
def test_floating_functions(name: str, given: list[float], expected: float) -> None:
    function = float_function(name)
    assert function is not None and bits_function(name) is None
    assert float(function(*(np.array([value]) for value in given))[0]) == pytest.approx(
        expected, rel=1e-12, nan_ok=True
    )


@pytest.mark.parametrize(
    "name", ["fadd_rd", "fdiv_rz", "fmaf_ru", "dmul_rd", "frcp_rz", "fsqrt_ru"]
)
def test_arithmetic_rounded_in_another_direction_is_none_of_them(name: str) -> None:
    assert float_function(name) is None and bits_function(name) is None
    directed = [word for word in LIBDEVICE if word.endswith(("_rd", "_ru", "_rz"))]
    assert not any(
        word.startswith(("add", "sub", "mul", "div", "fma", "rcp", "sqrt")) for word in directed
    )


TINY, BIG = 2.0**-127, 2.0**126


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        # A power by way of the logarithm.
        (
            "powf",
            [[-2.0, -0.5, -0.0, 2.0, 3.0], [2.0, 3.0, 2.0, 10.0, 0.0]],
            [math.nan, math.nan, 0.0, 1024.0, 1.0],
        ),
        (
            "powf",
            [[0.0, 0.0, TINY, math.inf, 4.0], [0.0, -1.0, -1.0, -1.0, math.nan]],
            [math.nan, math.inf, math.inf, 0.0, math.nan],
        ),
        (
            "fdividef",
            [[1.0, 1.0, -1.0, math.inf, 1.0], [BIG, 1.5 * BIG, 2.0**127, 2.0**127, math.inf]],
            [1 / BIG, 0.0, -0.0, math.nan, 0.0],
        ),
        ("fdividef", [[1.0, TINY, 0.0], [TINY, 1.0, 0.0]], [math.inf, 0.0, math.nan]),
        (
            "log2f",
            [[TINY, -1.0, 0.5, 1 + 2.0**-20, 1 + 2.0**-23]],
            [-math.inf, math.nan, -1.0, 6 * 2.0**-22, 2.0**-22],
        ),
        ("logf", [[TINY, 1.0, math.inf]], [-math.inf, 0.0, math.inf]),
        ("log10f", [[TINY, -1.0]], [-math.inf, math.nan]),
        ("expf", [[-87.5, 0.0, 89.0]], [0.0, 1.0, math.inf]),
        ("exp10f", [[-38.0, 0.0, 38.6]], [0.0, 1.0, math.inf]),
        ("sinf", [[0.0, math.inf]], [0.0, math.nan]),
        ("cosf", [[0.0, math.inf]], [1.0, math.nan]),
        ("tanf", [[0.0, math.inf]], [0.0, math.nan]),
    ],
)
def test_fast_functions_have_the_ranges_that_are_documented(
    name: str, given: list[list[float]], expected: list[float]
) -> None:
    function = float_function(f"fast_{name}")
    assert function is not None
    with np.errstate(all="ignore"):
        found = function(*(np.asarray(values, F32).astype(F64) for values in given))
    np.testing.assert_array_equal(found, np.asarray(expected, F32))


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_fast_angles_are_good_within_half_a_revolution_only(name: str) -> None:
    function, exact = float_function(f"fast_{name}f"), getattr(np, name)
    assert function is not None
    near, far = (np.linspace(-end, end, 999).astype(F32).astype(F64) for end in (1.0, 1e5))
    assert np.abs(function(near) - exact(near)).max() < 2.0**-21
    assert np.abs(function(far) - exact(far)).max() > 2.0**-10


@pytest.mark.parametrize(
    ("name", "low", "high", "digits"),
    [
        ("exp", -80, 80, 5),
        ("exp10", -30, 30, 5),
        ("log", 2, 1e30, 6),
        ("log2", 2, 1e30, 6),
        ("log10", 2, 1e30, 6),
    ],
)
def test_fast_functions_are_good_elsewhere(name: str, low: float, high: float, digits: int) -> None:
    fast, exact = float_function(f"fast_{name}f"), float_function(name)
    assert fast is not None and exact is not None
    values = np.linspace(low, high, 999).astype(F32).astype(F64)
    np.testing.assert_allclose(fast(values), exact(values), rtol=10.0**-digits)


def test_both_kinds_run_in_a_kernel(interpreter: Zygote) -> None:
    text = ROW.replace("as tl\n", "as tl\nfrom triton.language.extra import libdevice\n", 1)
    result = "libdevice.int_as_float(libdevice.float_as_int(libdevice.j0(v))) + libdevice.popc(libdevice.float2int_rd(v))"
    x = torch.linspace(0, 9, 40)[None]
    execution = Execution(rowwise("kernel", (1, 40), "float32", block=64), (x,))
    answer = run(interpreter, text.format(body="pass", result=result), execution)[0]
    assert isinstance(answer, Executed), answer
    ones = torch.tensor([bin(int(value)).count("1") for value in x[0]], dtype=torch.float32)
    torch.testing.assert_close(answer.outputs[0], torch.special.bessel_j0(x) + ones)
