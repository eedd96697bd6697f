"""The test of a saved kernel that was judged by a user's own reference."""

from __future__ import annotations

from collections.abc import Sequence

from kmint_tui.save.reference_copy import Case, ReferenceCopy

_NOT_RUN = '''"""Checks what {stem}.py refuses.

The kernel is not run: the reference that it was judged by is no function of torch alone, and is not
in this folder. To judge the kernel again:

    {verify}
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from {module} import ARGUMENTS, JUDGED, NUMBERS, TENSORS, _size
from {module} import {stem} as kernel
'''

_RUN = '''"""Checks the kernel {stem} against the function that it was judged by.

With a GPU the kernel runs there. Without one Triton's interpreter runs it on the CPU, in a process
of its own: that shows wrong numbers, but no fault of the compiled code. TOLERANCE is from the
receipt. To judge the kernel again:

    {verify}
"""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from {module} import ARGUMENTS, JUDGED, NUMBERS, TENSORS, _run, _size
from {module} import {stem} as kernel
from {module}_reference import {name} as reference

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
runs_kernel = pytest.mark.skipif(not (GPU or INTERPRETED), reason="see test_kernel_interpreted")

# Of every tensor its shape, dtype, kind of values and scale; and the numbers.
CASES: list[tuple[list[Any], dict[str, float]]] = [
{cases}
]
# What sums and functions may be wrong by, as a share of the largest output, or of one.
TOLERANCE = {tolerance!r}


def drawn(shape: tuple[int, ...], dtype: torch.dtype, values: str, scale: float) -> Tensor:
    kind, *limits = values.split(":")
    if kind in ("index", "range"):
        low, high = (0, int(limits[0])) if kind == "index" else (int(limits[0]), int(limits[1]) + 1)
        return torch.randint(low, high, shape).to(DEVICE, dtype)
    made = torch.rand(shape) if kind == "uniform" else torch.randn(shape)
    return (scale * (1 + made / 2 if kind == "around_one" else made)).to(DEVICE, dtype)


def check(found: Any, arguments: dict[str, Any]) -> None:
    """At most 1.5 steps of the dtype, TOLERANCE, and twice the error of the reference itself."""
    # A function may change its arguments.
    own, upcast = (
        {{name: change(one) if isinstance(one, Tensor) else one for name, one in arguments.items()}}
        for change in (torch.clone, lambda one: one.float() if one.is_floating_point() else one)
    )
    wanted, rounded = reference(**upcast), reference(**own)
    several = [one if isinstance(one, tuple) else (one,) for one in (found, wanted, rounded)]
    assert len(several[0]) == len(several[1])
    for place, (out, exact, usual) in enumerate(zip(*several, strict=True)):
        assert (out.shape, out.dtype) == (usual.shape, usual.dtype), place
        values, exact, usual = out.float(), exact.float(), usual.float()
        error, own_error = (values - exact).abs(), (usual - exact).abs()
        if out.is_floating_point():
            step = 1.5 * torch.finfo(out.dtype).eps * exact.abs()
            allowed = step + TOLERANCE * max(1.0, float(exact.abs().max())) + 2 * own_error.max()
        else:
            # Rounding falls either way, but seldom.
            allowed = torch.ones_like(exact)
            assert (error > 0).float().mean() <= 0.01, place
        assert (error <= allowed).all(), f"output {{place}}: off by {{error.max()}}"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@runs_kernel
@pytest.mark.parametrize("number", range(len(CASES)))
def test_kernel(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(number)
    tensors, numbers = CASES[number]
    drawn_ones = [drawn(*one) for one in tensors]
    arguments: dict[str, Any] = {{**dict(zip(TENSORS, drawn_ones, strict=True)), **numbers}}
    launch: Callable[..., Any] = kernel if GPU else _run
    check(launch(*[arguments[name] for name in ARGUMENTS]), arguments)


@pytest.mark.skipif(GPU or INTERPRETED, reason="test_kernel ran in this process")
def test_kernel_interpreted() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "test_kernel"]
    environment = {{**os.environ, "TRITON_INTERPRET": "1"}}
    done = subprocess.run(
        [*command, __file__], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
'''

_REFUSES = """

PLACES = range(len(JUDGED))


def judged(number: int) -> list[Any]:
    # On the meta device, where a tensor has no values and takes no memory.
    shapes, ranges = JUDGED[number][:2]
    sizes = {symbol: least for symbol, (least, most, multiple) in ranges.items()}
    return [
        torch.empty([_size(dim, sizes) for dim in dims], dtype=dtype, device="meta")
        for dims, dtype in shapes
    ]


def call(tensors: list[Any]) -> Tensor | tuple[Tensor, ...]:
    values = {**dict(zip(TENSORS, tensors, strict=True)), **dict.fromkeys(NUMBERS, 1)}
    return kernel(*[values[name] for name in ARGUMENTS])


@pytest.mark.parametrize("number", PLACES)
def test_what_was_judged_is_taken_on_a_gpu_only(number: int) -> None:
    with pytest.raises(ValueError, match="GPU"):
        call(judged(number))


@pytest.mark.parametrize("number", PLACES)
@pytest.mark.parametrize("position", range(len(TENSORS)))
def test_wrong_arguments_are_named(number: int, position: int) -> None:
    good = judged(number)[position]
    none = good.new_empty([0] * good.dim())
    misshaped = none if good.dim() and good.numel() else good[None, None, None]
    wrong = ((None, TypeError), (good.to(torch.complex64), TypeError), (misshaped, ValueError))
    for value, error in wrong:
        tensors = judged(number)
        tensors[position] = value
        with pytest.raises(error, match=rf"\\b{TENSORS[position]}\\b"):
            call(tensors)
"""


def render_user_test(
    stem: str,
    module: str,
    verify: str,
    *,
    copy: ReferenceCopy | None,
    cases: Sequence[Case],
    numbers: Sequence[str],
    tolerance: float,
) -> str:
    """The text of `test_<stem>.py`, which imports the kernel from `module`."""
    if copy is None or not cases:
        return _NOT_RUN.format(stem=stem, module=module, verify=verify) + _REFUSES
    listed = "\n".join(f"    {_case(one, numbers)}," for one in cases)
    head = _RUN.format(
        stem=stem, module=module, verify=verify, name=copy.name, cases=listed, tolerance=tolerance
    )
    return head + _REFUSES


def _case(case: Case, numbers: Sequence[str]) -> str:
    tensors = ", ".join(
        f'({shape!r}, torch.{dtype}, "{recipe}", {scale!r})'
        for shape, dtype, recipe, scale in case.tensors
    )
    given = ", ".join(
        f'"{name}": {value!r}' for name, value in zip(numbers, case.numbers, strict=True)
    )
    return f"([{tensors}], {{{given}}})"
