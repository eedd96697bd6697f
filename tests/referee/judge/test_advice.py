"""What an author is told besides: hidden lanes first, loops that read the same, examples that are
right."""

from __future__ import annotations

from pathlib import Path

import pytest

from referee import Referee, TaskName
from referee.interpreter.spin_loops import find_spin_loop
from referee.reading.idle_loops import idle_loop

SOFTMAX = """
@triton.jit
def _kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * N + cols, e / tl.sum(e, axis=0), mask=mask)


def run(x):
    M, N = x.shape
    out = torch.empty_like(x)
    _kernel[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N))
    return out
"""
POSITIVE = """
@triton.jit
def _kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(out_ptr + at, tl.where(x > 1000.0, 0.0, x * 2.0), mask=at < n)


def run(x):
    out = torch.empty_like(x)
    _kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out
"""
REFERENCE = """
import torch

def twice(x):
    return x * 2.0

EXAMPLES = [[torch.arange(300.0).reshape(3, 100)]]
"""


def test_hidden_lanes_come_before_every_other_hint(referee: Referee) -> None:
    verdict = referee.judge(SOFTMAX, "softmax", level="correct")
    assert verdict.guard == "wrong_answer"
    assert "lanes that `tl.load(x_ptr + row * N + cols, mask=mask)` hides" in verdict.reason
    assert "give `other`" in verdict.reason and "check the grid" not in verdict.reason


def test_it_is_told_that_the_example_itself_is_right(referee: Referee, tmp_path: Path) -> None:
    file = tmp_path / "twice.py"
    file.write_text(REFERENCE)
    verdict = referee.judge(POSITIVE, TaskName("", str(file), "twice"), level="correct")
    assert verdict.guard == "wrong_answer", verdict.reason
    assert "the example itself is right" in verdict.reason


LOOP = """
def kernel(x, N, BLOCK):
    cols = tl.arange(0, BLOCK)
    acc = 0.0
    for start in range(0, N, BLOCK):
        {}
"""


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("acc += tl.sum(tl.load(x + cols, mask=cols < N))", "start"),
        ("at = cols + 1; acc += tl.sum(tl.load(x + at))", "start"),
        ("acc += tl.sum(tl.load(x + start + cols))", ""),
        ("at = start + cols; acc += tl.sum(tl.load(x + at))", ""),
        ("acc += tl.sum(tl.load(x + cols)); x += BLOCK", ""),
        ("at = x + cols; acc += tl.sum(tl.load(at)); x = x + BLOCK", ""),
        ("acc += tl.sum(tl.load(p)); p = tl.advance(p, (BLOCK,))", ""),
        ("acc = acc * 2.0", ""),
    ],
)
def test_a_loop_variable_that_nothing_uses_is_named(body: str, name: str) -> None:
    assert idle_loop(LOOP.format(body)) == name
    assert idle_loop(LOOP.format(body).replace("start", "_start")) == ""


def test_a_loop_that_waits_for_another_program_is_shown() -> None:
    waits = "def k(f):\n    while tl.atomic_add(f, 0) < 4:\n        pass\n"
    assert find_spin_loop(waits) == "while tl.atomic_add(f, 0) < 4"
    looks = (
        "def k(f):\n    seen = 0\n    while seen < 4:\n        seen = tl.load(f, volatile=True)\n"
    )
    assert find_spin_loop(looks) == "while seen < 4"
    assert find_spin_loop("def k(f):\n    n = 0\n    while n < 4:\n        n += tl.load(f)\n") == ""
