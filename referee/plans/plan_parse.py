"""Launch plans as JSON data: a strict parser and its inverse.

The data comes from a process that ran the candidate, so it may be anything. `parse` accepts exactly
the output of `dump` for a valid plan, and raises `PlanError` for all else. Examples are unknown or
missing keys, wrong types (a bool is not an int), numbers that are not finite, and too many items.
It also checks every rule of `plan_check`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from referee.ops.spec import TensorSpec
from referee.plans.dtypes import ITEMSIZE, TRITON_DTYPES
from referee.plans.plan import (
    MAX_BUFFERS,
    MAX_STEPS,
    PLAN_VERSION,
    Argument,
    Buffer,
    Copy,
    DtypeValue,
    Fill,
    Launch,
    LaunchConfig,
    LaunchPlan,
    Step,
    Tuning,
    Value,
    View,
)
from referee.plans.plan_check import PlanError, check_plan
from referee.reading.kernels import KernelModule

__all__ = ["PlanError", "dump", "dump_value", "parse", "parse_value"]

MAX_DIMS = 16
MAX_CONFIGS = 64
MAX_ARGUMENTS = 64
MAX_TUPLE = 16
MAX_TEXT = 200
MAX_NESTING = 4
MAX_SIZE = 1 << 48
NAMED_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

Item = TypeVar("Item")


def parse(
    data: object,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    module: KernelModule | None = None,
) -> LaunchPlan:
    """The plan in `data`, checked against the test case's inputs and outputs and, if given, the
    clean kernel module.

    Raises PlanError.
    """
    fields = _fields(data, "the plan", "version", "buffers", "inputs", "steps", "outputs")
    if _integer(fields["version"], "version") != PLAN_VERSION:
        raise PlanError("this plan's version is not known")
    plan = LaunchPlan(
        buffers=_items(fields["buffers"], "buffers", MAX_BUFFERS, _buffer),
        inputs=_items(fields["inputs"], "inputs", MAX_BUFFERS, _view),
        steps=_items(fields["steps"], "steps", MAX_STEPS, _step),
        outputs=_items(fields["outputs"], "outputs", MAX_BUFFERS, _view),
    )
    check_plan(plan, inputs, outputs, module)
    return plan


def dump(plan: LaunchPlan) -> dict[str, Any]:
    """The JSON form of a plan; `parse` reads it back to an equal plan."""
    return {
        "version": plan.version,
        "buffers": [{"nbytes": buffer.nbytes, "input": buffer.input} for buffer in plan.buffers],
        "inputs": [_dump_view(view) for view in plan.inputs],
        "steps": [_dump_step(step) for step in plan.steps],
        "outputs": [_dump_view(view) for view in plan.outputs],
    }


def dump_value(value: Value) -> Any:
    """The JSON form of one kernel argument's value."""
    if isinstance(value, View):
        return {"view": _dump_view(value)}
    if isinstance(value, DtypeValue):
        return {"dtype": value.name}
    if isinstance(value, tuple):
        return {"tuple": [dump_value(item) for item in value]}
    return _dump_number(value) if isinstance(value, float) else value


def parse_value(data: object, nesting: int = 0) -> Value:
    """The value whose JSON form is `data`. Raises PlanError."""
    if data is None or isinstance(data, bool):
        return data
    if isinstance(data, int):
        return _integer(data, "an argument", -(1 << 63), (1 << 64) - 1)
    if isinstance(data, float):
        return _number(data)
    if isinstance(data, str):
        return _text(data, "an argument")
    if isinstance(data, dict) and len(data) == 1:
        ((kind, content),) = data.items()
        if kind == "view":
            return _view(content)
        if kind == "float":
            return _number(data)
        if kind == "dtype" and isinstance(content, str) and content in TRITON_DTYPES:
            return DtypeValue(content)
        if kind == "tuple" and nesting < MAX_NESTING:
            return _items(
                content, "a tuple", MAX_TUPLE, lambda item: parse_value(item, nesting + 1)
            )
    raise PlanError("an argument has a value that no kernel takes")


def _dump_view(view: View) -> dict[str, Any]:
    return {
        "buffer": view.buffer,
        "offset": view.offset,
        "shape": list(view.shape),
        "strides": list(view.strides),
        "dtype": view.dtype,
    }


def _dump_number(value: float) -> Any:
    if math.isfinite(value):
        return value
    return {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}


def _dump_step(step: Step) -> dict[str, Any]:
    if isinstance(step, Fill):
        value = _dump_number(step.value) if isinstance(step.value, float) else step.value
        return {"kind": "fill", "target": _dump_view(step.target), "value": value}
    if isinstance(step, Copy):
        return {
            "kind": "copy",
            "target": _dump_view(step.target),
            "source": _dump_view(step.source),
        }
    configs = [_dump_config(config) for config in step.configs]
    return {
        "kind": "launch",
        "kernel": step.kernel,
        "configs": configs,
        "tuning": _dump_tuning(step.tuning),
    }


def _dump_tuning(tuning: Tuning | None) -> Any:
    return tuning and {name: [_dump_view(one) for one in vars(tuning)[name]] for name in _TUNING}


def _dump_config(config: LaunchConfig) -> dict[str, Any]:
    arguments = [
        {"name": a.name, "value": dump_value(a.value), "constexpr": a.constexpr}
        for a in config.arguments
    ]
    numbers = {name: vars(config)[name] for name in (*_NUMBERS, "maxnreg")}
    return {"grid": list(config.grid), "arguments": arguments, **numbers}


_NUMBERS = ("num_warps", "num_stages", "num_ctas")
_TUNING = ("zeroed", "restored")


def _step(data: object) -> Step:
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind == "fill":
        fields = _fields(data, "a fill", "kind", "target", "value")
        value = fields["value"]
        if isinstance(value, int) and not isinstance(value, bool):
            value = _integer(value, "a fill value", -(1 << 63), (1 << 64) - 1)
        elif not isinstance(value, bool):
            value = _number(value)
        return Fill(_view(fields["target"]), value)
    if kind == "copy":
        fields = _fields(data, "a copy", "kind", "target", "source")
        return Copy(_view(fields["target"]), _view(fields["source"]))
    if kind == "launch":
        fields = _fields(data, "a launch", "kind", "kernel", "configs", "tuning")
        configs = _items(fields["configs"], "configs", MAX_CONFIGS, _config)
        return Launch(_text(fields["kernel"], "a kernel name"), configs, _tuning(fields["tuning"]))
    raise PlanError("a step is of no known kind")


def _tuning(data: object) -> Tuning | None:
    if data is None:
        return None
    fields = _fields(data, "a tuning", *_TUNING)
    return Tuning(*(_items(fields[name], name, MAX_ARGUMENTS, _view) for name in _TUNING))


def _config(data: object) -> LaunchConfig:
    fields = _fields(data, "a launch configuration", "grid", "arguments", *_NUMBERS, "maxnreg")
    grid = _items(fields["grid"], "grid", 3, lambda size: _integer(size, "a grid size"))
    if len(grid) != 3:
        raise PlanError("a grid does not have three sizes")
    maxnreg = fields["maxnreg"]
    return LaunchConfig(
        grid=(grid[0], grid[1], grid[2]),
        arguments=_items(fields["arguments"], "arguments", MAX_ARGUMENTS, _argument),
        maxnreg=None if maxnreg is None else _integer(maxnreg, "maxnreg"),
        **{name: _integer(fields[name], name) for name in _NUMBERS},
    )


def _argument(data: object) -> Argument:
    fields = _fields(data, "an argument", "name", "value", "constexpr")
    constexpr = fields["constexpr"]
    if not isinstance(constexpr, bool):
        raise PlanError("an argument does not say whether it is a constexpr")
    return Argument(
        _text(fields["name"], "an argument's name"), parse_value(fields["value"]), constexpr
    )


def _buffer(data: object) -> Buffer:
    fields = _fields(data, "a buffer", "nbytes", "input")
    owner = fields["input"]
    return Buffer(
        _integer(fields["nbytes"], "a buffer's size"),
        None if owner is None else _integer(owner, "a buffer's input"),
    )


def _view(data: object) -> View:
    fields = _fields(data, "a view", "buffer", "offset", "shape", "strides", "dtype")
    dtype = fields["dtype"]
    if not isinstance(dtype, str) or dtype not in ITEMSIZE:
        raise PlanError("a view has a dtype that no kernel takes")
    return View(
        buffer=_integer(fields["buffer"], "a view's buffer"),
        offset=_integer(fields["offset"], "a view's offset"),
        shape=_items(fields["shape"], "a shape", MAX_DIMS, lambda size: _integer(size, "a size")),
        strides=_items(
            fields["strides"], "strides", MAX_DIMS, lambda one: _integer(one, "a stride")
        ),
        dtype=dtype,
    )


def _fields(data: object, what: str, *names: str) -> dict[str, object]:
    if not isinstance(data, dict) or data.keys() != set(names):
        raise PlanError(f"{what} does not have exactly the fields {', '.join(names)}")
    return data


def _items(data: object, what: str, limit: int, read: Callable[[object], Item]) -> tuple[Item, ...]:
    if not isinstance(data, list):
        raise PlanError(f"{what}: a list was expected")
    if len(data) > limit:
        raise PlanError(f"{what}: more than {limit}")
    return tuple(read(item) for item in data)


def _integer(data: object, what: str, low: int = 0, high: int = MAX_SIZE) -> int:
    if isinstance(data, bool) or not isinstance(data, int):
        raise PlanError(f"{what} is not an integer")
    if not low <= data <= high:
        raise PlanError(f"{what} is out of range")
    return data


def _number(data: object) -> float:
    named = data.get("float") if isinstance(data, dict) and len(data) == 1 else None
    if isinstance(named, str) and named in NAMED_FLOATS:
        return NAMED_FLOATS[named]
    if not isinstance(data, float) or not math.isfinite(data):
        raise PlanError("a number is not finite, or not a number")
    return data


def _text(data: object, what: str) -> str:
    if not isinstance(data, str) or len(data) > MAX_TEXT or not data.isprintable():
        raise PlanError(f"{what} is not a short printable string")
    return data
