"""The rules a plan must satisfy, each broken once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from referee.ops.spec import TensorSpec
from referee.plans.plan import (
    Argument,
    Buffer,
    Copy,
    DtypeValue,
    Fill,
    Launch,
    LaunchConfig,
    LaunchPlan,
    View,
)
from referee.plans.plan_check import (
    PlanError,
    check_plan,
    extent,
    input_nbytes,
    input_view,
    reordered_outputs,
)
from tests.referee.plan.example import INPUTS, MODULE, OUT, OUTPUTS, PLAN, SCRATCH, X, launch_of

LAUNCH = PLAN.steps[2]


def config(**changes: object) -> LaunchPlan:
    """The example with changed options of one launch."""
    return replace(PLAN, steps=(Launch("k", (replace(launch_of(64), **changes),)),))  # type: ignore[arg-type]


def with_argument(position: int, argument: Argument) -> LaunchPlan:
    """The example with one launch argument changed."""
    arguments = list(launch_of(64).arguments)
    arguments[position] = argument
    return config(arguments=tuple(arguments))


def with_step(step: Fill | Copy) -> LaunchPlan:
    return replace(PLAN, steps=(step, LAUNCH))


def output(view: View) -> LaunchPlan:
    return replace(PLAN, outputs=(view,))


BROKEN: dict[str, tuple[str, LaunchPlan]] = {
    "view_past_the_end": ("plan", with_step(Fill(replace(SCRATCH, offset=16), 0.0))),
    "view_of_no_buffer": ("plan", with_step(Fill(replace(SCRATCH, buffer=4), 0.0))),
    "view_misaligned": ("plan", with_step(Fill(replace(SCRATCH, offset=6), 0.0))),
    "view_without_strides": ("plan", with_step(Fill(replace(SCRATCH, strides=(4,)), 0.0))),
    "view_wide_stride": ("plan", with_step(Fill(replace(SCRATCH, strides=(40, 1)), 0.0))),
    "view_in_argument_past_the_end": (
        "plan",
        with_argument(0, Argument("x", replace(X, offset=22), False)),
    ),
    "view_in_tuple_past_the_end": (
        "plan",
        with_argument(1, Argument("pair", (1, replace(X, offset=22)), False)),
    ),
    "view_in_copy_source_past_the_end": (
        "plan",
        with_step(Copy(SCRATCH, replace(X, shape=(4, 3), strides=(20, 1)))),
    ),
    "empty_view_past_the_end": (
        "plan",
        with_step(Fill(replace(SCRATCH, offset=72, shape=(0, 3)), 0.0)),
    ),
    "input_buffer_size": ("plan", replace(PLAN, buffers=(Buffer(66, 0), *PLAN.buffers[1:]))),
    "input_buffer_order": (
        "plan",
        replace(PLAN, buffers=(PLAN.buffers[1], PLAN.buffers[0], *PLAN.buffers[2:])),
    ),
    "input_buffer_too_many": ("plan", replace(PLAN, buffers=(*PLAN.buffers, Buffer(4, 0)))),
    "input_missing": ("plan", replace(PLAN, inputs=(X,))),
    "input_shape": ("plan", replace(PLAN, inputs=(replace(X, shape=(4, 5)), PLAN.inputs[1]))),
    "scratch_out_of_proportion": (
        "plan_size",
        replace(PLAN, buffers=(*PLAN.buffers, Buffer(1 << 30))),
    ),
    "fill_of_input": ("input_written", with_step(Fill(X, 0.0))),
    "copy_into_input": ("input_written", with_step(Copy(X, OUT))),
    "fill_of_overlapping_view": ("plan", with_step(Fill(replace(SCRATCH, strides=(2, 1)), 0.0))),
    "fill_of_expanded_view": ("plan", with_step(Fill(replace(SCRATCH, strides=(0, 1)), 0.0))),
    "copy_into_expanded_view": (
        "plan",
        with_step(Copy(replace(SCRATCH, strides=(0, 1)), replace(SCRATCH, offset=0))),
    ),
    "fill_too_large": ("plan", with_step(Fill(OUT, 1e6))),
    "fill_fraction_into_integers": ("plan", with_step(Fill(replace(SCRATCH, dtype="int32"), 0.5))),
    "fill_nan_into_integers": (
        "plan",
        with_step(Fill(replace(SCRATCH, dtype="int32"), float("nan"))),
    ),
    "fill_range_of_integers": ("plan", with_step(Fill(View(3, 0, (4,), (1,), "int8"), 128))),
    "copy_of_other_shape": (
        "plan",
        with_step(Copy(SCRATCH, replace(X, shape=(2, 3), strides=(8, 1)))),
    ),
    "copy_of_more_dimensions": (
        "plan",
        with_step(Copy(View(3, 0, (3,), (1,), "float32"), View(0, 0, (1, 3), (3, 1), "float16"))),
    ),
    "copy_onto_itself_shifted": (
        "plan",
        with_step(Copy(View(3, 0, (4,), (1,), "float32"), View(3, 4, (4,), (1,), "float32"))),
    ),
    "grid_x": ("launch_limits", config(grid=(2**31, 1, 1))),
    "grid_y": ("launch_limits", config(grid=(1, 65536, 1))),
    "grid_z": ("launch_limits", config(grid=(1, 1, 65536))),
    "warps_three": ("launch_limits", config(num_warps=3)),
    "warps_zero": ("launch_limits", config(num_warps=0)),
    "warps_many": ("launch_limits", config(num_warps=64)),
    "stages_zero": ("launch_limits", config(num_stages=0)),
    "stages_many": ("launch_limits", config(num_stages=100)),
    "clusters": ("launch_feature", config(num_ctas=2)),
    "registers": ("launch_limits", config(maxnreg=8)),
    "no_configuration": ("plan", replace(PLAN, steps=(Launch("k", ()),))),
    "unknown_kernel": ("kernel_syntax", replace(PLAN, steps=(Launch("other", (launch_of(64),)),))),
    "missing_argument": ("plan", config(arguments=launch_of(64).arguments[:-1])),
    "surplus_argument": (
        "plan",
        config(arguments=(*launch_of(64).arguments, Argument("z", 1, False))),
    ),
    "swapped_arguments": ("plan", config(arguments=launch_of(64).arguments[::-1])),
    "constexpr_not_marked": ("plan", with_argument(7, Argument("B", 64, False))),
    "constexpr_tensor": ("trace_error", with_argument(3, Argument("n", X, True))),
    "constexpr_tensor_in_tuple": ("trace_error", with_argument(3, Argument("n", ((X,),), True))),
    "output_shape": ("output_contract", output(replace(OUT, shape=(6, 4), strides=(4, 1)))),
    "output_dtype": ("output_contract", output(replace(OUT, dtype="bfloat16"))),
    "output_strides": ("output_contract", output(replace(OUT, strides=(1, 2)))),
    "output_missing": ("output_contract", replace(PLAN, outputs=())),
    "output_surplus": ("output_contract", replace(PLAN, outputs=(OUT, OUT))),
    "output_is_input": ("output_alias", output(View(0, 4, (4, 6), (6, 1), "float16"))),
    "no_launch": ("no_kernel", replace(PLAN, steps=(Fill(OUT, 0.0),))),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_meets_its_guard(name: str) -> None:
    guard, plan = BROKEN[name]
    with pytest.raises(PlanError) as refused:
        check_plan(plan, INPUTS, OUTPUTS, MODULE)
    assert refused.value.guard == guard, refused.value


ALLOWED: dict[str, LaunchPlan] = {
    "example": PLAN,
    "empty_grid": config(grid=(0, 1, 1)),
    "largest_grid": config(grid=(2**31 - 1, 65535, 65535)),
    "empty_view_at_the_end": with_step(Fill(replace(SCRATCH, offset=68, shape=(0, 3)), 0.0)),
    "infinite_fill": with_step(Fill(OUT, float("inf"))),
    "integer_fill": with_step(Fill(View(3, 0, (4,), (1,), "int8"), -128)),
    "whole_float_into_integers": with_step(Fill(View(3, 0, (4,), (1,), "int32"), 2.0)),
    "true_into_bool": with_step(Fill(View(3, 0, (4,), (1,), "bool"), True)),
    "copy_between_halves": with_step(
        Copy(View(3, 0, (4,), (1,), "float32"), View(3, 16, (4,), (1,), "float32"))
    ),
    "copy_onto_itself": with_step(Copy(SCRATCH, SCRATCH)),
    "broadcast_copy": with_step(Copy(SCRATCH, View(1, 0, (1, 1), (9, 9), "float32"))),
    "transposed_target": with_step(Fill(View(3, 0, (2, 4), (1, 2), "float32"), 1.0)),
    "constant_parameter": with_argument(3, Argument("n", DtypeValue("fp32"), True)),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_within_the_rules_passes(name: str) -> None:
    check_plan(ALLOWED[name], INPUTS, OUTPUTS, MODULE)


def test_two_outputs_may_share_a_buffer_but_no_bytes() -> None:
    outputs = tuple(TensorSpec(name, (4, 3), "float16", (3, 1)) for name in ("a", "b"))
    halves = (View(2, 0, (4, 3), (3, 1), "float16"), View(2, 24, (4, 3), (3, 1), "float16"))
    check_plan(replace(PLAN, outputs=halves), INPUTS, outputs, MODULE)
    for second in (halves[0], replace(halves[1], offset=22)):
        with pytest.raises(PlanError, match="share memory"):
            check_plan(replace(PLAN, outputs=(halves[0], second)), INPUTS, outputs, MODULE)


@pytest.mark.parametrize(
    ("offset", "held", "words"),
    [(0, 48, ""), (16, 64, ""), (2, 64, "begins at byte 2"), (8, 64, "no multiple of 16")],
)
def test_an_output_begins_where_vectors_do(offset: int, held: int, words: str) -> None:
    plan = replace(
        PLAN,
        buffers=(*PLAN.buffers[:2], Buffer(held), PLAN.buffers[3]),
        outputs=(replace(OUT, offset=offset),),
    )
    refusal(plan, words)


@pytest.mark.parametrize(
    ("more", "words"), [(0, ""), (1, f"keeps {2 * 48 + (16 << 20) + 1} bytes alive")]
)
def test_an_output_keeps_little_else_alive(more: int, words: str) -> None:
    refusal(
        replace(
            PLAN, buffers=(*PLAN.buffers[:2], Buffer(2 * 48 + (16 << 20) + more), PLAN.buffers[3])
        ),
        words,
    )


def refusal(plan: LaunchPlan, words: str) -> None:
    """The plan keeps the contract of outputs, or is refused with these words."""
    if not words:
        check_plan(plan, INPUTS, OUTPUTS, MODULE)
        return
    with pytest.raises(PlanError, match=words) as refused:
        check_plan(plan, INPUTS, OUTPUTS, MODULE)
    assert refused.value.guard == "output_contract"


def test_a_declared_output_layout_is_accepted_as_the_dense_one() -> None:
    padded = (TensorSpec("out", (4, 6), "float16", (8, 1)),)
    plan = replace(PLAN, buffers=(*PLAN.buffers[:2], Buffer(64), PLAN.buffers[3]))
    check_plan(replace(plan, outputs=(replace(OUT, strides=(8, 1)),)), INPUTS, padded, MODULE)
    check_plan(plan, INPUTS, padded, MODULE)
    with pytest.raises(PlanError, match="contiguous"):
        check_plan(replace(plan, outputs=(replace(OUT, strides=(7, 1)),)), INPUTS, padded, MODULE)


def test_an_output_may_have_another_order_of_dimensions() -> None:
    turned = output(replace(OUT, strides=(1, 4)))
    check_plan(turned, INPUTS, OUTPUTS, MODULE)
    assert reordered_outputs(turned, OUTPUTS) == ["out"] and not reordered_outputs(PLAN, OUTPUTS)


def test_strides_of_single_elements_do_not_matter() -> None:
    outputs = (TensorSpec("out", (4, 1, 6), "float16", (6, 6, 1)),)
    check_plan(output(View(2, 0, (4, 1, 6), (6, 999, 1), "float16")), INPUTS, outputs, MODULE)


def test_an_empty_cell_needs_no_launch() -> None:
    inputs = (TensorSpec("x", (0, 6), "float16", (6, 1)),)
    outputs = (TensorSpec("out", (0, 6), "float16", (6, 1)),)
    view = View(0, 0, (0, 6), (6, 1), "float16")
    plan = LaunchPlan((Buffer(0, 0), Buffer(0)), (view,), (), (replace(view, buffer=1),))
    check_plan(plan, inputs, outputs, MODULE)


def test_without_a_module_kernels_are_not_checked() -> None:
    check_plan(
        replace(PLAN, steps=(Launch("other", (LaunchConfig((1, 1, 1), ()),)),)),
        INPUTS,
        OUTPUTS,
        None,
    )


def test_extents_and_input_buffers() -> None:
    assert [
        extent(shape, strides)
        for shape, strides in (((), ()), ((3,), (2,)), ((0, 9), (9, 1)), ((2, 3), (0, 1)))
    ] == [1, 5, 0, 3]
    assert (input_nbytes(INPUTS[0]), input_view(0, INPUTS[0])) == (64, X)
