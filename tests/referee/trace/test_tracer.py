"""The tracer in this process: what it records of good candidates, and which guard stops bad ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from referee.ops.spec import Cell
from referee.plans.plan import Copy, DtypeValue, Fill, Launch, LaunchPlan, View
from referee.plans.plan_parse import PlanError, parse
from referee.reading.kernels import extract
from referee.target import Target
from referee.tracing.cell_shape import CellShape
from referee.tracing.tracer import trace_source
from tests.referee.trace.bad import ALLOCATE, BAD, BAD_PLANS, COPY, LAUNCH, Bad, body
from tests.referee.trace.good import GOOD, rows, tensor

CELL = rows("x", shape=(3, 100))


def answer(source: str, cell: Cell, tmp_path: Path, target: Target | None = None) -> dict[str, Any]:
    return trace_source(
        source,
        str(tmp_path / "candidate.py"),
        target or Target(),
        [CellShape(cell.inputs, len(cell.outputs))],
    )


def plan_of(source: str, cell: Cell, tmp_path: Path, target: Target | None = None) -> LaunchPlan:
    told = answer(source, cell, tmp_path, target)
    assert "plans" in told, told
    return parse(told["plans"][0], cell.inputs, cell.outputs, extract(source))


def good(name: str, tmp_path: Path) -> LaunchPlan:
    return plan_of(GOOD[name].source, GOOD[name].cell, tmp_path)


def launches(plan: LaunchPlan) -> list[Launch]:
    return [step for step in plan.steps if isinstance(step, Launch)]


def values(launch: Launch, config: int = 0) -> dict[str, Any]:
    return {argument.name: argument.value for argument in launch.configs[config].arguments}


@pytest.mark.parametrize("name", GOOD)
def test_every_style_is_traced(name: str, tmp_path: Path) -> None:
    plan = good(name, tmp_path)
    assert len(plan.outputs) == len(GOOD[name].cell.outputs)


@pytest.mark.parametrize("name", BAD)
def test_every_misuse_meets_its_guard(name: str, tmp_path: Path) -> None:
    bad = BAD[name]
    told = answer(bad.source, CELL, tmp_path)
    assert "rejection" in told, told
    assert (told["rejection"]["guard"], bad.says in told["rejection"]["reason"]) == (
        bad.guard,
        True,
    ), told


@pytest.mark.parametrize("name", BAD_PLANS)
def test_every_dishonest_plan_meets_its_guard(name: str, tmp_path: Path) -> None:
    bad = BAD_PLANS[name]
    told = answer(bad.source, CELL, tmp_path)
    with pytest.raises(PlanError) as refused:
        parse(told["plans"][0], CELL.inputs, CELL.outputs, extract(bad.source))
    assert (refused.value.guard, bad.says in str(refused.value)) == (bad.guard, True), refused.value


AUTOGRAD = f"""
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        y = torch.empty_like(x)
        {LAUNCH}
        return y

    @staticmethod
    def backward(ctx, dy):
        return dy if ctx.needs_input_grad[0] else None, None

class Layer(torch.nn.Module):
    def forward(self, x, w):
        return Copy.apply(x, w)

def run(x, w):
    assert isinstance(w, torch.Tensor)
    if x.requires_grad or w.requires_grad:
        return Copy.apply(x, w)
    return Layer()(x, w)
"""


def test_an_autograd_function_launches_the_same_for_any_input(tmp_path: Path) -> None:
    assert "plans" in answer(COPY + AUTOGRAD, rows("x", extra=(tensor("w", (257,)),)), tmp_path)


def test_grid_arguments_and_options(tmp_path: Path) -> None:
    launch = launches(good("keywords", tmp_path))[0]
    config = launch.configs[0]
    assert (launch.kernel, config.grid) == ("softsign", (10, 1, 1))
    assert (config.num_warps, config.num_stages, config.num_ctas, config.maxnreg) == (8, 2, 1, 64)
    assert [(a.name, a.constexpr) for a in config.arguments] == [
        ("x_ptr", False),
        ("y_ptr", False),
        ("n_elements", False),
        ("BLOCK_SIZE", True),
    ]
    assert values(launch)["n_elements"] == 37 * 257


def test_autotune_configurations_become_variants_with_grids(tmp_path: Path) -> None:
    (launch,) = launches(good("autotune", tmp_path))
    assert [
        (values(launch, i)["BLOCK"], c.num_warps, c.num_stages, c.grid[0])
        for i, c in enumerate(launch.configs)
    ] == [
        (256, 4, 2, 38),
        (256, 8, 2, 38),
        (512, 4, 2, 19),
        (512, 8, 2, 19),
    ]


def test_heuristics_are_computed_from_the_arguments(tmp_path: Path) -> None:
    (launch,) = launches(good("heuristics", tmp_path))
    assert (values(launch)["BLOCK"], values(launch)["EVEN"], launch.configs[0].num_warps) == (
        512,
        False,
        4,
    )
    (nested,) = launches(good("autotune_of_heuristics", tmp_path))
    assert [values(nested, i)["LOOPS"] for i in range(2)] == [3, 1]


def test_constexprs_of_every_kind(tmp_path: Path) -> None:
    (launch,) = launches(good("constexpr_dtype", tmp_path))
    given = values(launch)
    assert (given["OUT"], given["WIDE"], given["SCALE"]) == (
        DtypeValue("bf16"),
        DtypeValue("fp32"),
        1.0,
    )
    optional = values(launches(good("optional", tmp_path))[0])
    assert (optional["ACTIVATION"], optional["bias"]) == ("relu", None)


def test_a_constexpr_value_makes_a_plain_parameter_constant(tmp_path: Path) -> None:
    source = Bad(
        "",
        "",
        body(ALLOCATE, "copy[(1,)](x, y, tl.constexpr(7), BLOCK=tl.constexpr(128))", "return y"),
    ).source
    arguments = launches(plan_of(source, CELL, tmp_path))[0].configs[0].arguments
    assert [(a.value, a.constexpr) for a in arguments[2:]] == [(7, True), (128, True)]


def test_tuples_hold_views_and_numbers(tmp_path: Path) -> None:
    given = values(launches(good("tuples", tmp_path))[0])
    assert [type(item) for item in given["tensors"]] == [View, View]
    assert given["strides"] == (257, 1)


def test_views_keep_their_byte_offsets(tmp_path: Path) -> None:
    given = values(launches(good("offset_views", tmp_path))[0])
    assert [(given[name].buffer, given[name].offset) for name in ("a", "b", "oa", "ob")] == [
        (0, 0),
        (0, 128),
        (1, 0),
        (1, 128),
    ]
    assert given["b"].strides == (128, 1)


def test_offset_and_padded_inputs_are_told_truthfully(tmp_path: Path) -> None:
    cell = GOOD["offset_input"].cell
    plan = good("offset_input", tmp_path)
    assert plan.inputs == (View(0, 6, (3, 5), (5, 1), "float16"),)
    assert plan.buffers[0].nbytes == 2 * (3 + 15)
    assert cell.inputs[0].offset == 3


def test_fills_copies_and_allocations(tmp_path: Path) -> None:
    fills = [step for step in good("scratch", tmp_path).steps if isinstance(step, Fill)]
    assert [(fill.value, fill.target.shape, fill.target.dtype) for fill in fills] == [
        (0, (37,), "float32"),
        (float("-inf"), (37,), "float32"),
        (1.5, (37,), "float32"),
    ]
    copies = [step for step in good("data_movement", tmp_path).steps if isinstance(step, Copy)]
    assert [(copy.source.dtype, copy.target.dtype) for copy in copies] == [
        ("float16", "float32"),
        ("float32", "float32"),
        ("float32", "float16"),
    ]
    assert (copies[1].source.strides, copies[1].target.strides) == ((1, 257), (37, 1))


def test_buffers_that_nothing_uses_are_left_out(tmp_path: Path) -> None:
    source = Bad(
        "", "", body("torch.empty(5, dtype=x.dtype, device=x.device)", ALLOCATE, LAUNCH, "return y")
    ).source
    assert len(plan_of(source, CELL, tmp_path).buffers) == 2


def test_what_nothing_uses_must_fit_into_memory_too(tmp_path: Path) -> None:
    source = Bad(
        "",
        "",
        body(
            "torch.empty(1 << 50, dtype=torch.int8, device=x.device)", ALLOCATE, LAUNCH, "return y"
        ),
    ).source
    assert answer(source, CELL, tmp_path)["rejection"]["guard"] == "plan_size"


def test_integers_need_no_dtype(tmp_path: Path) -> None:
    source = Bad(
        "", "", body("torch.full((5,), 0, device=x.device)", ALLOCATE, LAUNCH, "return y")
    ).source
    assert "plans" in answer(source, CELL, tmp_path)


def test_slice_assignment_is_data_movement(tmp_path: Path) -> None:
    source = Bad(
        "", "", body(ALLOCATE, LAUNCH, "y[:, 50:] = x[:, 50:]", "y[0] = 2.0", "return y")
    ).source
    kinds = [type(step).__name__ for step in plan_of(source, CELL, tmp_path).steps]
    assert kinds == ["Launch", "Copy", "Fill", "Copy"]


def test_device_queries_are_answered_from_the_target(tmp_path: Path) -> None:
    source = Bad(
        "",
        "",
        body(
            ALLOCATE,
            "p = torch.cuda.get_device_properties(0)",
            "with torch.cuda.device(x.device), torch.cuda.device_of(x): pass",
            "assert {p: 1}[p] and p == torch.cuda.get_device_properties(0)",
            "a = triton.runtime.driver.active",
            "assert a.get_current_target().arch == 10 * p.major + p.minor and a.get_current_device() == x.device.index",
            "assert a.utils.get_device_properties(0)['max_shared_mem'] == p.shared_memory_per_block_optin",
            "assert torch.cuda.is_available() and torch.cuda.device_count() == 1 + x.device.index",
            "assert torch.cuda.default_stream().cuda_stream == 0",
            "assert x.device == a.get_active_torch_device() and x.is_cuda and x.get_device() == x.device.index",
            "assert x.cuda() is x and x.type() == 'torch.cuda.HalfTensor' and not x.is_cpu and not x.is_meta",
            "copy[(p.multi_processor_count,)](x, y, x.numel(), BLOCK=128)",
            "return y",
        ),
    ).source
    for name, processors in (("sm_80", 108), ("sm_89", 128), ("sm_90", 132)):
        assert launches(plan_of(source, CELL, tmp_path, Target.parse(name)))[0].configs[0].grid == (
            processors,
            1,
            1,
        )


def test_plans_differ_by_shape_and_dtype_and_share_one_import(tmp_path: Path) -> None:
    source = GOOD["whole_row"].source
    cells = [
        rows("x", shape=(1, 1), dtype="float32"),
        rows("x", shape=(8192, 4096), dtype="bfloat16"),
    ]
    told = trace_source(
        source, str(tmp_path / "c.py"), Target(), [CellShape(cell.inputs, 1) for cell in cells]
    )
    first, second = (
        parse(data, cell.inputs, cell.outputs, extract(source))
        for data, cell in zip(told["plans"], cells, strict=True)
    )
    assert [launches(plan)[0].configs[0].grid for plan in (first, second)] == [
        (1, 1, 1),
        (8192, 1, 1),
    ]
    assert [launches(plan)[0].configs[0].num_warps for plan in (first, second)] == [4, 8]


def test_a_rejection_tells_its_cell(tmp_path: Path) -> None:
    source = Bad("", "", body("assert x.shape[0] < 5", ALLOCATE, LAUNCH, "return y")).source
    told = trace_source(
        source,
        str(tmp_path / "c.py"),
        Target(),
        [CellShape((tensor("x", (n, 4)),), 1) for n in (3, 4, 5, 6)],
    )
    assert told["rejection"] == {
        "guard": "trace_error",
        "reason": "line 9: AssertionError",
        "cell": 2,
    }


def test_tracing_leaves_torch_and_triton_as_they_were(tmp_path: Path) -> None:
    import sys

    import torch
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    before = (
        torch.cuda.is_available,
        torch.cuda.device,
        JITFunction.run,
        JITFunction.warmup,
        dict(driver.__dict__),
    )
    answer(BAD["exception"].source, CELL, tmp_path)
    assert before == (
        torch.cuda.is_available,
        torch.cuda.device,
        JITFunction.run,
        JITFunction.warmup,
        dict(driver.__dict__),
    )
    assert "candidate" not in sys.modules
    assert torch.empty(1).device.type == "cpu"


def test_a_device_that_stays_set_is_state(tmp_path: Path) -> None:
    told = answer(
        COPY + body("torch.cuda.set_device(x.device)", ALLOCATE, LAUNCH, "return y"), CELL, tmp_path
    )
    assert told["rejection"]["guard"] == "state" and "set_device" in told["rejection"]["reason"]
