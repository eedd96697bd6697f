"""Which plans are compiled where none is replayed."""

from __future__ import annotations

from dataclasses import replace

from referee import ops
from referee.ops.spec import Cell
from referee.plans.plan import Launch, LaunchPlan, Value
from referee.plans.sampling import MOST_PLANS, Branches, compile_sample, kernel_branches
from tests.referee.judge.plans import buffers_of, dense, launch

CELLS = {cell.inputs[0].dtype: cell for cell in ops.cells(ops.get("silu"), profile="cpu")}
BENCH = next(cell for cell in ops.cells(ops.get("silu"), profile="gpu") if cell.role == "bench")
NO_BRANCHES = dict.fromkeys(
    ("kernel", "finish", "long", *(f"kernel{number}" for number in range(20))),
    Branches((), frozenset()),
)
X = dense(0, (8,), "float32")


def plan(
    kernel: str = "kernel", constants: dict[str, Value] | None = None, **arguments: Value
) -> LaunchPlan:
    step = launch(kernel, (1, 1, 1), {"BLOCK": 64, **(constants or {})}, x=X, **arguments)
    return LaunchPlan(buffers_of(X, inputs=1), (X,), (step,), ())


def sampled(*plans: LaunchPlan, dtypes: int = 1, ones: bool = True) -> list[int]:
    """Which of the plans are compiled, all at cells of one dtype."""
    cell = CELLS["float32"]
    return [
        plans.index(one)
        for one in compile_sample(
            [(cell, plan) for plan in plans], NO_BRANCHES, dtypes=dtypes, ones=ones
        )
    ]


def test_the_timed_cell_comes_first_then_one_of_each_dtype() -> None:
    cells: list[Cell] = [*CELLS.values(), *CELLS.values(), BENCH]
    traced = [(cell, plan(n=100 + number)) for number, cell in enumerate(cells)]
    found = compile_sample(traced, NO_BRANCHES)
    assert len(CELLS) == 3 and len(found) == 3
    assert found[0] == traced[-1][1]
    assert compile_sample(traced, NO_BRANCHES, dtypes=1) == [traced[-1][1]]


def test_each_further_kernel_is_compiled_once() -> None:
    both = replace(plan(n=3), steps=(*plan(n=3).steps, *plan("finish", n=3).steps))
    assert sampled(plan(n=1000), plan(n=2000), plan("long", n=2), plan("long", n=3), both) == [
        0,
        2,
        4,
    ]


def test_each_set_of_flags_is_compiled_once() -> None:
    def flagged(even: Value, act: Value = "silu", bias: Value = 3) -> LaunchPlan:
        return plan(constants={"EVEN": even, "ACT": act}, bias=bias)

    assert sampled(
        flagged(True), flagged(False), flagged(True, None), flagged(False), flagged(True, "gelu")
    ) == [0, 1, 2, 4]
    assert sampled(flagged(True), flagged(True, bias=None)) == [0, 1]


def test_numbers_decide_nothing_unless_they_are_one() -> None:
    sizes = (
        plan(constants={"BLOCK": 32}, n=1000),
        plan(n=64),
        plan(n=1),
        plan(n=1, m=3),
        plan(n=3, eps=1.0),
    )
    assert sampled(*sizes) == [0, 2]
    assert sampled(*sizes, ones=False) == [0]


def test_all_configurations_of_a_launch_are_known() -> None:
    (one,), (other,) = plan(constants={"EVEN": True}).steps, plan(constants={"EVEN": False}).steps
    assert isinstance(one, Launch) and isinstance(other, Launch)
    tuned = replace(plan(), steps=(replace(one, configs=one.configs + other.configs),))
    assert sampled(tuned, plan(constants={"EVEN": False}), plan(constants={"EVEN": None})) == [0, 2]


def test_so_many_are_compiled_at_most() -> None:
    assert len(sampled(*(plan(f"kernel{number}") for number in range(20)))) == MOST_PLANS


TEXT = """
@triton.jit
def helper(x, WIDE: tl.constexpr):
    return x if WIDE else -x

@triton.jit
def kernel(x, n, eps, ACT: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, SPLIT: tl.constexpr):
    if BLOCK > 1024 and ACT != "relu":
        x = x + 1
    many = ROWS * 2
    if n > many:
        x = x + eps
    y = helper(x, WIDE=SPLIT)

@triton.jit
def changed(x, BLOCK: tl.constexpr, TEXT: tl.constexpr):
    BLOCK = BLOCK // 2
    if BLOCK > 4:
        x = x + 1
    if TEXT * 1000000000000 == "a":
        x = x + 1
"""


def test_a_condition_decides_or_else_its_constants_do() -> None:
    choosing = kernel_branches(TEXT)

    def chosen(kernel: str, **constants: Value) -> dict[str, Value]:
        (step,) = plan(kernel, constants, n=7).steps
        assert isinstance(step, Launch)
        return dict(choosing[kernel].chosen(step.configs[0].arguments))

    test = "BLOCK > 1024 and ACT != 'relu'"
    found = chosen("kernel", ACT="silu", BLOCK=2048, ROWS=4, SPLIT=0)
    assert found == {test: True, "ROWS": 4, "SPLIT": 0}
    assert chosen("kernel", ACT="silu", BLOCK=4096, ROWS=4, SPLIT=0) == found
    assert chosen("kernel", ACT="relu", BLOCK=4096, ROWS=8, SPLIT=1) == {
        test: False,
        "ROWS": 8,
        "SPLIT": 1,
    }
    assert chosen("changed", BLOCK=16, TEXT="a") == {"BLOCK": 16, "TEXT": "a"}
    assert chosen("changed", BLOCK=16, TEXT=3) == {
        "BLOCK": 16,
        "TEXT * 1000000000000 == 'a'": False,
    }


def test_each_branch_is_compiled_once() -> None:
    cell = CELLS["float32"]
    plans = [
        plan(constants={"ACT": "silu", "BLOCK": block, "ROWS": 1, "SPLIT": 0})
        for block in (512, 64, 2048, 8192)
    ]
    assert [
        plans.index(one)
        for one in compile_sample([(cell, plan) for plan in plans], kernel_branches(TEXT))
    ] == [0, 2]
