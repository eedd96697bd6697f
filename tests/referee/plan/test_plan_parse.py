"""Plans as JSON: read back exactly, and nothing but the exact form accepted."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from referee.plans.plan import MAX_STEPS
from referee.plans.plan_parse import PlanError, dump, dump_value, parse, parse_value
from tests.referee.plan.example import INPUTS, MODULE, OUTPUTS, PLAN

Change = Callable[[dict[str, Any]], object]


def changed(change: Change) -> dict[str, Any]:
    data = json.loads(json.dumps(dump(PLAN)))
    change(data)
    return data  # type: ignore[no-any-return]


def launch(data: dict[str, Any], config: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = data["steps"][2]["configs"][config]
    return found


def argument(data: dict[str, Any], position: int) -> dict[str, Any]:
    found: dict[str, Any] = launch(data)["arguments"][position]
    return found


def test_a_plan_is_read_back_through_json() -> None:
    text = json.dumps(dump(PLAN), allow_nan=False)
    assert parse(json.loads(text), INPUTS, OUTPUTS, MODULE) == PLAN
    assert parse(json.loads(text), INPUTS, OUTPUTS) == PLAN


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        (1 << 64) - 1,
        -(1 << 63),
        True,
        False,
        None,
        "",
        "relu",
        0.1,
        float("inf"),
        float("-inf"),
        ((1, "a"), ()),
    ],
)
def test_values_are_read_back(value: Any) -> None:
    again = parse_value(json.loads(json.dumps(dump_value(value), allow_nan=False)))
    assert again == value and type(again) is type(value)


def test_nan_is_read_back() -> None:
    again = parse_value(json.loads(json.dumps(dump_value(float("nan")), allow_nan=False)))
    assert again != again


WRONG: dict[str, Change] = {
    "unknown_key": lambda d: d.update(extra=1),
    "missing_key": lambda d: d.pop("outputs"),
    "other_version": lambda d: d.update(version=3),
    "version_is_bool": lambda d: d.update(version=True),
    "buffers_not_a_list": lambda d: d.update(buffers={}),
    "buffer_not_a_dict": lambda d: d["buffers"].append(3),
    "size_is_float": lambda d: d["buffers"][2].update(nbytes=48.0),
    "size_is_bool": lambda d: d["buffers"][2].update(nbytes=True),
    "size_is_negative": lambda d: d["buffers"][2].update(nbytes=-1),
    "size_is_huge": lambda d: d["buffers"][2].update(nbytes=1 << 70),
    "size_is_text": lambda d: d["buffers"][2].update(nbytes="48"),
    "too_many_buffers": lambda d: d["buffers"].extend([{"nbytes": 1, "input": None}] * 300),
    "too_many_steps": lambda d: d["steps"].extend([d["steps"][0]] * MAX_STEPS),
    "too_many_configs": lambda d: d["steps"][2].update(configs=[launch(d)] * 65),
    "too_many_dimensions": lambda d: d["outputs"][0].update(shape=[1] * 17, strides=[1] * 17),
    "step_of_no_kind": lambda d: d["steps"][0].pop("kind"),
    "step_of_unknown_kind": lambda d: d["steps"][0].update(kind="exec"),
    "step_not_a_dict": lambda d: d["steps"].append("launch"),
    "fill_of_text": lambda d: d["steps"][0].update(value="1"),
    "fill_of_none": lambda d: d["steps"][0].update(value=None),
    "fill_of_raw_nan": lambda d: d["steps"][0].update(value=float("nan")),
    "fill_of_named_number": lambda d: d["steps"][0].update(value={"float": "1.0"}),
    "fill_of_float_list": lambda d: d["steps"][0].update(value={"float": ["nan"]}),
    "grid_is_float": lambda d: launch(d).update(grid=[4.0, 1, 1]),
    "grid_is_nan": lambda d: launch(d).update(grid=[float("nan"), 1, 1]),
    "grid_is_bool": lambda d: launch(d).update(grid=[True, 1, 1]),
    "grid_is_negative": lambda d: launch(d).update(grid=[-4, 1, 1]),
    "grid_is_short": lambda d: launch(d).update(grid=[4, 1]),
    "grid_is_long": lambda d: launch(d).update(grid=[4, 1, 1, 1]),
    "warps_are_text": lambda d: launch(d).update(num_warps="8"),
    "unknown_option": lambda d: launch(d).update(stream=1),
    "kernel_not_text": lambda d: d["steps"][2].update(kernel=["k"]),
    "kernel_name_unprintable": lambda d: d["steps"][2].update(kernel="k\n"),
    "constexpr_is_int": lambda d: argument(d, 7).update(constexpr=1),
    "argument_without_name": lambda d: argument(d, 3).pop("name"),
    "value_of_unknown_kind": lambda d: argument(d, 3).update(value={"pickle": "x"}),
    "value_with_two_kinds": lambda d: argument(d, 3).update(
        value={"dtype": "fp32", "float": "nan"}
    ),
    "value_is_list": lambda d: argument(d, 3).update(value=[1]),
    "value_is_empty_dict": lambda d: argument(d, 3).update(value={}),
    "value_is_huge": lambda d: argument(d, 3).update(value=1 << 64),
    "value_is_raw_infinity": lambda d: argument(d, 3).update(value=float("inf")),
    "value_is_long_text": lambda d: argument(d, 8).update(value="x" * 201),
    "value_is_unprintable": lambda d: argument(d, 8).update(value="\x1b[2J"),
    "unknown_dtype": lambda d: argument(d, 8).update(value={"dtype": "float32"}),
    "dtype_is_list": lambda d: argument(d, 8).update(value={"dtype": ["fp32"]}),
    "long_tuple": lambda d: argument(d, 1).update(value={"tuple": [1] * 17}),
    "deep_tuple": lambda d: argument(d, 1).update(
        value={"tuple": [{"tuple": [{"tuple": [{"tuple": [{"tuple": []}]}]}]}]}
    ),
    "view_dtype_unknown": lambda d: d["outputs"][0].update(dtype="complex64"),
    "view_dtype_unhashable": lambda d: d["outputs"][0].update(dtype=["float16"]),
    "view_offset_negative": lambda d: d["outputs"][0].update(offset=-2),
    "view_stride_negative": lambda d: d["outputs"][0].update(strides=[-6, 1]),
    "view_stride_bool": lambda d: d["outputs"][0].update(strides=[6, True]),
}


@pytest.mark.parametrize("name", WRONG)
def test_any_other_form_is_refused(name: str) -> None:
    with pytest.raises(PlanError):
        parse(changed(WRONG[name]), INPUTS, OUTPUTS, MODULE)


@pytest.mark.parametrize("data", [None, 3, "plan", [], {}, [[]], float("nan"), True, object()])
def test_things_that_are_no_plan_at_all_are_refused(data: object) -> None:
    with pytest.raises(PlanError):
        parse(data, INPUTS, OUTPUTS, MODULE)


def test_deep_recursion_is_refused() -> None:
    deep: Any = {"tuple": []}
    for _ in range(5000):
        deep = {"tuple": [deep]}
    with pytest.raises(PlanError):
        parse_value(deep)
    data = copy.deepcopy(dump(PLAN))
    argument(data, 1)["value"] = deep
    with pytest.raises(PlanError):
        parse(data, INPUTS, OUTPUTS, MODULE)
