"""The CPU path with a few programs of each launch: which they are, what they are blamed for, and
what they cannot know.
"""

from __future__ import annotations

from math import prod

import pytest
import torch

from referee.interpreter.interpret import Executed, Execution
from referee.interpreter.program_sample import MAX_SAMPLED, sample_programs
from referee.plans.plan import Buffer, Copy, Fill, LaunchPlan, Step, View
from referee.sandbox.zygote import Zygote
from tests.referee.judge.interpreting import ROW, rejection, run
from tests.referee.judge.plans import HEADER, buffers_of, dense, launch, rowwise

ROWS, COLUMNS = 3000, 40
TWO = (
    HEADER
    + """
@triton.jit
def row_of(pointer, row, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    return tl.load(pointer + row * n + cols, mask=cols < n, other=0.0)


@triton.jit
def first(x0, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    tl.store(out + row * n + cols, row_of(x0, row, n, BLOCK), mask=cols < n)


@triton.jit
def second(x0, out, n, ahead, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    v = row_of(x0, row + ahead, n, BLOCK)
    {body}
    tl.store(out + row * n + cols, v, mask=cols < n)
"""
)


def two_launches(body: str, ahead: int, *between: Step) -> tuple[str, Execution]:
    """The second launch reads rows of the first one, `ahead` rows further on; buffer 3 is free."""
    x, scratch, out, left = (dense(number, (ROWS, COLUMNS), "float32") for number in range(4))
    from_x = launch("first", (ROWS, 1, 1), {"BLOCK": 64}, x0=x, out=scratch, n=COLUMNS)
    source = left if between else scratch
    to_out = launch(
        "second", (ROWS - 8, 1, 1), {"BLOCK": 64}, x0=source, out=out, n=COLUMNS, ahead=ahead
    )
    plan = LaunchPlan(
        buffers_of(x, scratch, out, left, inputs=1), (x,), (from_x, *between, to_out), (out,)
    )
    return TWO.format(body=body), Execution(plan, (torch.ones(ROWS, COLUMNS),), sample_seed=5)


@pytest.mark.parametrize(
    "grid",
    [
        (1, 1, 1),
        (7, 1, 1),
        (8192, 1, 1),
        (65599, 4, 1),
        (1, 65535, 1),
        (2048, 2048, 64),
        (300, 300, 300),
    ],
)
def test_both_ends_the_middle_and_secret_programs_are_taken(grid: tuple[int, int, int]) -> None:
    programs = list(sample_programs(grid, 1))
    assert programs == sorted(set(programs)) and len(programs) <= MAX_SAMPLED
    assert (0, 0, 0) in programs and tuple(size - 1 for size in grid) in programs
    assert all(
        0 <= at < size for program in programs for at, size in zip(program, grid, strict=True)
    )
    if prod(grid) <= 8:
        assert len(programs) == prod(grid)
    elif max(grid) == prod(grid):
        assert programs != list(sample_programs(grid, 2)), "nobody knows which"
    if grid[1:] == (1, 1):
        assert all(
            (at, 0, 0) in programs for at in {0, 1, grid[0] // 2, grid[0] - 1} if at < grid[0]
        )


def test_an_axis_as_long_gets_the_same_programs_in_every_launch() -> None:
    assert {row for row, _, _ in sample_programs((4096, 3, 1), 9)} == {
        row for row, _, _ in sample_programs((4096, 1, 1), 9)
    }


@pytest.mark.parametrize(
    ("body", "guard", "words"),
    [
        (
            "v += tl.load(x0 + (row + 1) * n + cols) * 0",
            "out_of_bounds",
            "elements past the end of `x0`",
        ),
        (
            "v += tl.load(out + row * n + cols, mask=mask)",
            "not_deterministic",
            "that nothing has written",
        ),
        (
            "tl.store(x0 + row * n + cols, v + 1, mask=mask)",
            "input_mutated",
            "changes the input `x0`",
        ),
        (
            "tl.store(out + cols, v + row, mask=mask)",
            "not_deterministic",
            "use the same element of `out`",
        ),
    ],
)
def test_what_a_program_does_alone_or_to_its_neighbour_is_named(
    interpreter: Zygote, body: str, guard: str, words: str
) -> None:
    plan = rowwise("kernel", (ROWS, COLUMNS), "float32", block=64)
    found = rejection(
        run(
            interpreter,
            ROW.format(body=body, result="v"),
            Execution(plan, (torch.ones(ROWS, COLUMNS),), sample_seed=5),
        )
    )
    assert found.guard == guard and words in found.reason, found


def test_a_right_kernel_is_not_blamed_for_any_other_program(interpreter: Zygote) -> None:
    plan = rowwise("kernel", (ROWS, COLUMNS), "float32", block=64)
    taken = {row for row, _, _ in sample_programs((ROWS, 1, 1), 5)}
    left = next(row for row in range(ROWS) if row not in taken)
    assert 10 <= len(taken) < 20
    for row, right in ((left, True), (max(taken), False)):
        text = ROW.format(
            body=f"tl.store(x0 + row * n + cols, v + 1, mask=mask & (row == {row}))", result="v"
        )
        (answer,) = run(
            interpreter, text, Execution(plan, (torch.ones(ROWS, COLUMNS),), sample_seed=5)
        )
        assert isinstance(answer, Executed) == right, answer
        assert not right or answer == Executed(())


@pytest.mark.parametrize("rows", [1, 7, 64, ROWS])
def test_inputs_of_few_rows_come_again(interpreter: Zygote, rows: int) -> None:
    plan = rowwise("kernel", (ROWS, COLUMNS), "float32", block=64)
    few = torch.arange(float(rows))[:, None].expand(rows, COLUMNS).contiguous()
    for wanted in (f"row % {rows}", f"row % {rows} + (row == {ROWS - 1})"):
        # A program in whose row there is something else changes an input.
        text = ROW.format(
            body=f"tl.store(x0 + row * n + cols, v + 1, mask=mask & (v != ({wanted}).to(tl.float32)))",
            result="v",
        )
        (answer,) = run(interpreter, text, Execution(plan, (few,), sample_seed=5))
        assert isinstance(answer, Executed) == ("==" not in wanted), answer


@pytest.mark.parametrize(
    ("body", "right"),
    [
        ("tl.store(x0 + row * n + cols, v, mask=mask)", True),
        ("tl.store(x0 + row * n + cols, v + (row > 9), mask=mask)", False),
        (
            "v = tl.atomic_max(x0 + row * n + cols, v, mask=mask)\n    tl.store(x0 + row * n + cols, v, mask=mask)",
            True,
        ),
        ("tl.atomic_add(x0 + row * n + cols, (row > 9).to(tl.float32), mask=mask)", False),
        (
            "v *= tl.atomic_cas(x0 + row * n, -1.0, 0.0) == v\n    tl.store(x0 + row * n + cols, v, mask=mask)",
            True,
        ),
        ("tl.atomic_cas(x0 + row * n, 5.0, 0.0)", False),
    ],
)
def test_and_what_is_stored_there_has_to_be_what_is_there(
    interpreter: Zygote, body: str, right: bool
) -> None:
    plan = rowwise("kernel", (ROWS, COLUMNS), "float32", block=64)
    few = torch.arange(8.0)[:, None].expand(8, COLUMNS).contiguous()
    (answer,) = run(
        interpreter, ROW.format(body=body, result="v"), Execution(plan, (few,), sample_seed=5)
    )
    assert (
        isinstance(answer, Executed) if right else rejection([answer]).guard == "input_mutated"
    ), answer


@pytest.mark.parametrize(("gap", "copy"), [(3, False), (0, True), (3, True)])
def test_they_come_again_where_rows_have_gaps_and_in_copies_too(
    interpreter: Zygote, gap: int, copy: bool
) -> None:
    step, copied, out = (
        COLUMNS + gap,
        dense(1, (ROWS, COLUMNS), "float32"),
        dense(2, (ROWS, COLUMNS), "float32"),
    )
    x = View(0, 0, (ROWS, COLUMNS), (step, 1), "float32")
    source, stride = (copied, COLUMNS) if copy else (x, step)
    kernel = launch("kernel", (ROWS, 1, 1), {"BLOCK": 64}, x0=source, out=out, n=COLUMNS, s=stride)
    buffers = (Buffer(4 * ROWS * step, 0), *buffers_of(x, copied, out, inputs=0)[1:])
    plan = LaunchPlan(buffers, (x,), (Copy(copied, x), kernel) if copy else (kernel,), (out,))
    few = torch.arange(8.0)[:, None].expand(8, COLUMNS).contiguous()
    for rows in (8, 7):
        far = f"row += (tl.max(v, 0) != row % {rows}).to(tl.int32) * {ROWS}"
        text = (
            ROW.format(body=far, result="v")
            .replace("x0 + row * n", "x0 + row * s")
            .replace("n, BLOCK", "n, s, BLOCK")
        )
        (answer,) = run(interpreter, text, Execution(plan, (few,), sample_seed=5))
        assert (
            isinstance(answer, Executed)
            if rows == 8
            else rejection([answer]).guard == "out_of_bounds"
        ), answer


@pytest.mark.parametrize("ahead", [0, 8])
def test_reads_of_an_earlier_launch_are_not_blamed(interpreter: Zygote, ahead: int) -> None:
    text, execution = two_launches("pass", ahead)
    assert isinstance(run(interpreter, text, execution)[0], Executed)


def test_nor_what_was_copied_from_there(interpreter: Zygote) -> None:
    text, execution = two_launches(
        "pass", 8, Copy(dense(3, (ROWS, COLUMNS), "float32"), dense(1, (ROWS, COLUMNS), "float32"))
    )
    assert isinstance(run(interpreter, text, execution)[0], Executed)


def test_what_no_launch_may_have_written_is_named_all_the_same(interpreter: Zygote) -> None:
    text, execution = two_launches("pass", 8, Fill(dense(3, (1, COLUMNS), "float32"), 0.0))
    found = rejection(run(interpreter, text, execution))
    assert (
        found.guard == "not_deterministic"
        and "reads 40 elements of `x0` that nothing has written" in found.reason
    )


def test_a_program_that_continues_another_is_followed_to_its_end(interpreter: Zygote) -> None:
    text, execution = two_launches("v += tl.load(out - 1 + cols, mask=cols < 1)", 0)
    assert "before the start of `out`" in rejection(run(interpreter, text, execution)).reason


def test_a_grid_of_billions_takes_time_and_no_memory(interpreter: Zygote) -> None:
    x, out = (dense(number, (1, COLUMNS), "float32") for number in range(2))
    step = launch("kernel", (2**31 - 1, 1, 1), {"BLOCK": 64}, x0=x, out=out, n=COLUMNS)
    plan = LaunchPlan(buffers_of(x, out, inputs=1), (x,), (step,), (out,))
    text = ROW.format(body="pass", result="v").replace("tl.program_id(0)", "tl.program_id(0) * 0")
    assert (
        rejection(
            run(interpreter, text, Execution(plan, (torch.ones(1, COLUMNS),)), seconds=2.0)
        ).guard
        == "timeout"
    )
