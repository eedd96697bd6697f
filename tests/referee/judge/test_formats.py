"""The interpreter's number formats, which it converts without torch, against torch's."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from referee.interpreter.formats import converted, stored_as
from tests.sampling import sample

Array = NDArray[Any]

FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "bool")
EDGES = (
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    448.0,
    463.9,
    464.0,
    464.1,
    480.0,
    500.0,
    57344.0,
    61439.0,
    61440.0,
    61441.0,
    65536.0,
    1e30,
)


def stored(tensor: Tensor) -> Array:
    """A tensor's elements as the interpreter holds them."""
    kind = stored_as(str(tensor.dtype).removeprefix("torch."))
    return np.asarray(tensor.view(getattr(torch, kind.name)).numpy())


def same(found: Array, wanted: Array, dtype: str) -> Array:
    """Which elements have the same bits, or are both NaN."""
    numbers = [converted(some, dtype, "float64") for some in (found, wanted)]
    bits = found.view(f"u{found.itemsize}") == wanted.view(f"u{wanted.itemsize}")
    return np.asarray(bits | (np.isnan(numbers[0]) & np.isnan(numbers[1])))


@pytest.mark.parametrize(
    ("given", "wanted"),
    sample([*product(FLOATS, FLOATS), *product(FLOATS, INTEGERS), *product(INTEGERS, FLOATS)]),
)
def test_conversions_are_those_of_torch(given: str, wanted: str) -> None:
    """Every size of number, ties and ends of ranges; what no integer holds is left out."""
    chance = torch.Generator().manual_seed(7)
    scales = [
        torch.randn(20_000, generator=chance) * scale
        for scale in (1e-6, 1e-4, 1e-2, 1.0, 30.0, 300.0, 1e4, 1e5)
    ]
    values = torch.cat([*scales, torch.tensor(EDGES)])
    if given in INTEGERS or wanted in INTEGERS:
        values = values.nan_to_num(0.0).clamp(0.0, 120.0)
    source = values.to(getattr(torch, given))
    with np.errstate(all="ignore"):
        # As in the worker, where numbers may leave a format's range.
        found = converted(stored(source), given, wanted)
    right = stored(source.to(getattr(torch, wanted)))
    assert found.dtype == right.dtype
    agree = same(found, right, wanted)
    assert agree.all(), [
        (source[place].item(), found[place], right[place])
        for place in np.flatnonzero(~agree)[:5].tolist()
    ]


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_every_code_of_eight_bits_is_its_number(dtype: str) -> None:
    """All 256 codes, read and written again."""
    codes = torch.arange(256, dtype=torch.uint8)
    with np.errstate(all="ignore"):
        numbers = converted(codes.numpy(), dtype, "float32")
    assert np.array_equal(
        numbers, codes.view(getattr(torch, dtype)).float().numpy(), equal_nan=True
    )
    finite = np.isfinite(numbers)
    assert converted(numbers, "float32", dtype)[finite].tolist() == codes.numpy()[finite].tolist()
