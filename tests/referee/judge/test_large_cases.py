"""Next to a replay the interpreter runs a few programs of large cells."""

from __future__ import annotations

from select import select

import pytest

from referee.candidate import Traced
from referee.checks.interpreter_checks import MOST_CELLS
from referee.concurrency import CancelToken
from referee.cpu_path import CpuPath
from referee.verdict import Rejection, Verdict
from tests.referee.judge.test_interpreter_checks import LARGE_GROUPS, rejected
from tests.referee.stand_in import SOURCE, Replayer, Servers, judged


def test_few_programs_run_at_the_timed_cell_and_at_large_shapes(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def noted(path: CpuPath, group: Traced, *, cancel: CancelToken) -> None:
        asked.append([cell.name for cell, _ in group])

    monkeypatch.setattr("referee.checks.interpreter_checks.check_sampled_programs", noted)
    report, _ = judged(servers, SOURCE, Replayer())
    assert len(asked) == LARGE_GROUPS
    timed, *rest = sorted(asked, key=len)
    others = [name for group in rest for name in group]
    assert timed == ["f16-8192x4096-normal-x1"] and {
        "f32-65599x128-mixed-x1",
        "bf16-1031x7168-mixed-x1",
    } < set(others)
    shapes = [tuple(map(int, name.split("-")[1].split("x"))) for name in others]
    assert len(others) == MOST_CELLS - 1 and all(rows > 16 for rows, _ in shapes)
    assert not any(
        1 / 4 < a / c < 4 and 1 / 4 < b / d < 4 and (b % 128 == 0) == (d % 128 == 0)
        for number, (a, b) in enumerate(shapes)
        for c, d in shapes[:number]
    )
    assert f"each of {MOST_CELLS} large cases" in report.checks["programs"].detail


WAYS = """@triton.jit
def _silu(x_ptr, y_ptr, columns, NARROW: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    at = tl.program_id(0).to(tl.int64) * columns + column
    if NARROW:
        x = tl.load(x_ptr + at).to(tl.float32)
    else:
        x = tl.load(x_ptr + at, mask=column < columns).to(tl.float32)
    tl.store(y_ptr + at, x * tl.sigmoid(x), mask=column < columns)


def run(x):
    y = torch.empty_like(x)
    _silu[(x.shape[0],)](x, y, x.shape[1], NARROW=x.shape[1] == 127, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
"""


def test_few_programs_run_wherever_a_launch_is_unlike_others(servers: Servers) -> None:
    found = rejected(servers, WAYS)
    assert found.guard == "out_of_bounds" and "x127-" in found.reason, found


COUNTED = """@triton.jit
def _silu(x_ptr, y_ptr, count_ptr, total, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < total).to(tl.float32)
    tl.store(y_ptr + at, x * tl.sigmoid(x), mask=at < total)
    if total > 1_000_000:
        {then}


def run(x):
    y = torch.empty_like(x)
    count = torch.{made}((1,), device=x.device, dtype=torch.int32)
    _silu[(triton.cdiv(x.numel(), 256),)](x, y, count, x.numel(), BLOCK=256)
    return y
"""
WAITS = "tl.atomic_add(count_ptr, 1)\n        while tl.atomic_add(count_ptr, 0) < tl.num_programs(0):\n            pass"


@pytest.mark.parametrize(
    ("made", "then", "guard"),
    [
        ("zeros", "tl.atomic_add(count_ptr, 1)", None),
        ("empty", "tl.atomic_add(count_ptr, 1)", "not_deterministic"),
        ("zeros", WAITS, None),
    ],
)
def test_programs_with_atomics_are_checked_and_may_wait(
    servers: Servers, made: str, then: str, guard: str | None
) -> None:
    _, found = judged(servers, COUNTED.format(made=made, then=then), Replayer())
    if guard:
        assert (
            isinstance(found, Rejection)
            and found.guard == guard
            and "that nothing has written" in found.reason
        ), found
    else:
        assert (
            isinstance(found, Verdict)
            and found.verdict == "correct"
            and "not checked" not in found.reason
        ), found


def test_what_is_rejected_waits_for_no_interpreter(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waits(path: CpuPath, group: Traced, *, cancel: CancelToken) -> None:
        assert select([cancel], [], [], 60.0)[0], "no cancel came"

    monkeypatch.setattr("referee.checks.interpreter_checks.check_sampled_programs", waits)
    _, found = judged(servers, SOURCE, Replayer(frozenset(["f16-8192x4096-normal-x1"])))
    assert isinstance(found, Rejection) and found.guard == "wrong_answer"
