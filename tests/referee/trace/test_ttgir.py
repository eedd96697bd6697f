"""What the compiler says by its own word, for either version of Triton: atomics whose results
nothing reads, addresses as numbers.
"""

from __future__ import annotations

import pytest

from referee.compiling.binaries import Binaries, unread_lines
from referee.compiling.compile import compile_plan
from referee.compiling.ttgir import NOWHERE, unread_atomics
from referee.reading.kernels import extract
from referee.sandbox.zygote import Zygote
from referee.target import Target
from referee.tracing.trace import trace
from referee.verdict import Rejection
from tests.referee.trace.good import rows

SOURCE = """@triton.jit
def _plus(place, amount):
    return tl.atomic_add(place, amount)


@triton.jit
def _kernel(x_ptr, y_ptr, c_ptr, n, ZERO: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    {body}
    tl.store(y_ptr + at, x, mask=at < n)


def run(x):
    y = torch.empty_like(x)
    c = torch.zeros((4,), dtype=torch.int32, device=x.device)
    _kernel[(1,)](x, y, c, x.numel(), ZERO=0, BLOCK=128)
    return y
"""
ADD = "t = tl.atomic_add(c_ptr, 1)\n    "
READ = {
    "a condition": f"{ADD}if t == 3:\n        tl.store(c_ptr + 1, 7)",
    "a store": f"{ADD}tl.store(c_ptr + 1, t)",
    "an address": f"{ADD}x = tl.load(x_ptr + (t + at) % n)",
    "a lock": "while tl.atomic_cas(c_ptr, 0, 1) != 0:\n        pass",
    "a helper's": "t = _plus(c_ptr, 1)\n    if t == 3:\n        tl.store(c_ptr + 1, 7)",
}
UNREAD = {
    "no name": "tl.atomic_add(c_ptr, 1)",
    "a name": "t = tl.atomic_add(c_ptr, 1)",
    "times nothing": f"{ADD}x = tl.load(x_ptr + (t * 0 + at) % n)",
    "times a constant": f"{ADD}x = tl.load(x_ptr + (t * ZERO + at) % n)",
    "less itself": "t = tl.atomic_cas(c_ptr, 0, 1)\n    tl.store(c_ptr + 1, t - t)",
    "a branch that is not there": f"{ADD}if ZERO:\n        tl.store(c_ptr + 1, t)",
    "either way": f"{ADD}x = tl.where(t == 3, x, x)",
    "over lines": "t = tl.atomic_add(\n        c_ptr,\n        1,\n    )\n    tl.store(c_ptr + 1, t * 0)",
    "a helper's": "t = _plus(c_ptr, 1)\n    tl.store(c_ptr + 1, t * 0)",
}


def compiled(zygote: Zygote, body: str) -> tuple[Binaries | Rejection, str]:
    """What compiling comes to, and the text of the clean kernel module."""
    source = SOURCE.format(body=body)
    module = extract(source)
    plans = trace(zygote, source, [rows("x", shape=(1, 100))], Target(), module)
    assert isinstance(plans, tuple), plans
    return compile_plan(zygote, module, plans[0], Target()), module.text


def unread(zygote: Zygote, body: str) -> tuple[list[int], list[int]]:
    """Lines with atomics that the compiler says nothing reads, and lines with atomics that the
    kernel comes to.
    """
    binaries, text = compiled(zygote, body)
    assert isinstance(binaries, Binaries), binaries
    lines = [number for number, line in enumerate(text.splitlines(), 1) if "atomic" in line]
    return sorted(unread_lines(binaries.found.values())), lines[:1] if "_plus" in body else lines[
        -1:
    ]


@pytest.mark.parametrize("name", READ)
def test_a_result_that_something_reads_is_read(zygote: Zygote, name: str) -> None:
    assert unread(zygote, READ[name])[0] == []


@pytest.mark.parametrize("name", UNREAD)
def test_a_result_that_nothing_reads_is_told_by_its_line(zygote: Zygote, name: str) -> None:
    told, lines = unread(zygote, UNREAD[name])
    assert told == lines


def test_of_two_atomics_one_is_told(zygote: Zygote) -> None:
    told, lines = unread(zygote, f"{ADD}tl.store(c_ptr + 1, t)\n    tl.atomic_add(c_ptr + 2, 1)")
    assert told == lines


def test_an_atomic_whose_place_is_not_told_is_told() -> None:
    text = "tt.func public @k() {\n  %1 = tt.atomic_rmw add, acq_rel, gpu, %a, %b, %c : (!tt.ptr<i32>, i32, i1) -> i32 loc(#loc3)\n}\n"
    assert unread_atomics(text, "kernels.py") == (NOWHERE,)
    told = '#loc3 = loc("t"(#loc4))\n#loc4 = loc(callsite(#loc5 at #loc6))\n#loc5 = loc("kernels.py":7:2)\n#loc6 = loc("kernels.py":9:2)\n'
    assert unread_atomics(text + told, "kernels.py") == (7,)
    assert unread_atomics(text + told, "other.py") == (NOWHERE,)
    assert unread_atomics(text + '#loc3 = loc("t"(#loc3))\n', "kernels.py") == (NOWHERE,)
    assert (
        unread_atomics(text.replace("}", "  %10 = arith.addi %1, %1\n}") + told, "kernels.py") == ()
    )
    assert unread_atomics(
        text.replace("}", "  %11 = arith.addi %10, %10\n}") + told, "kernels.py"
    ) == (7,)


def test_names_are_those_of_one_function() -> None:
    atomic = "  %1 = tt.atomic_rmw add, acq_rel, gpu, %a, %b, %c : (!tt.ptr<i32>, i32, i1) -> i32\n"
    other = "tt.func private @f() {\n  %1 = arith.constant 1 : i32\n  tt.return %1 : i32\n}\n"
    assert unread_atomics(f"tt.func public @k() {{\n{atomic}}}\n{other}", "kernels.py") == (
        NOWHERE,
    )
    assert (
        unread_atomics(
            f"tt.func public @k() {{\n{atomic}  tt.return %1 : i32\n}}\n{other}", "kernels.py"
        )
        == ()
    )


@pytest.mark.parametrize(
    "number",
    ["x_ptr.to(tl.int64)", "(x_ptr + at).to(tl.uint64, bitcast=True)", "tl.cast(y_ptr, tl.int64)"],
)
def test_an_address_is_no_number(zygote: Zygote, number: str) -> None:
    body = f"x += (({number}) % 4096 == 0).to(tl.float32)"
    found = compiled(zygote, body)[0]
    assert (
        isinstance(found, Rejection)
        and found.guard == "compile_error"
        and "takes an address for a number" in found.reason
    ), found


def test_addresses_that_are_only_added_to_are_none(zygote: Zygote) -> None:
    assert isinstance(
        compiled(zygote, "x += tl.load(tl.multiple_of(x_ptr, 16) + at, mask=at < n)")[0], Binaries
    )
