"""Mutations of plans, and an independent judge of what may never be accepted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

from referee.plans.plan import Launch, LaunchPlan, View
from referee.plans.plan_parse import PlanError, dump, parse
from tests.referee.plan.example import INPUTS, MODULE, OUTPUTS, PLAN

SIZES = {
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "bool": 1,
}
SIZES |= {"uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1}

ATOMS: list[Any] = [
    *(
        0,
        1,
        2,
        3,
        4,
        6,
        7,
        8,
        15,
        16,
        24,
        47,
        48,
        64,
        68,
        255,
        256,
        65535,
        65536,
        2**31 - 1,
        2**31,
        2**47,
        2**63,
        2**64,
        10**30,
    ),
    *(-1, -2, -48, True, False, None, 0.0, 1.5, 1e300, float("nan"), float("inf"), float("-inf")),
    *(
        "",
        "k",
        "two",
        "x",
        "float16",
        "float32",
        "int64",
        "complex64",
        "fp32",
        "\x00",
        "x" * 300,
        "launch",
        "fill",
        "copy",
    ),
    *(
        [],
        {},
        [1],
        [6, 1],
        [4, 6],
        {"view": 1},
        {"tuple": []},
        {"float": "nan"},
        {"dtype": "fp32"},
        {"tuple": [{"tuple": []}]},
    ),
]


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) in JSON data."""
    pending = [data]
    while pending:
        node = pending.pop()
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            yield node, key
            if isinstance(node[key], (dict, list)):
                pending.append(node[key])


def mutate(data: Any, rng: random.Random) -> Any:
    """`data` with one to four changes anywhere: replaced, nudged, removed, doubled, moved."""
    data = clone(data)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        spots = list(places(data))
        if not spots:
            return data
        node, key = rng.choice(spots)
        kind = rng.random()
        if kind < 0.35:
            node[key] = clone(rng.choice(ATOMS))
        elif kind < 0.65 and type(node[key]) is int:
            node[key] = rng.choice(
                (
                    node[key] + 1,
                    node[key] - 1,
                    node[key] * 2,
                    node[key] // 2,
                    node[key] * 1024,
                    -node[key],
                    node[key] + 2,
                )
            )
        elif kind < 0.75:
            other, where = rng.choice(spots)
            node[key] = clone(other[where])
        elif kind < 0.85:
            del node[key]
        elif isinstance(node, list):
            node.insert(rng.randrange(len(node) + 1), clone(node[key]))
        else:
            node[rng.choice(("extra", "offset", "value", "input", "kind"))] = clone(
                rng.choice(ATOMS)
            )
    return data


def clone(data: Any) -> Any:
    """A deep copy of JSON data, faster than copy.deepcopy."""
    if isinstance(data, dict):
        return {key: clone(value) for key, value in data.items()}
    return [clone(value) for value in data] if isinstance(data, list) else data


def views(value: Any) -> Iterator[View]:
    """Every view anywhere inside a plan, found by walking its fields."""
    if isinstance(value, View):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from views(item)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from views(getattr(value, name))


def complaint(plan: LaunchPlan) -> str | None:
    """Why this plan should not have been accepted, found by other means than the checker's own;
    None if it may be.
    """
    for view in views(plan):
        corners = product(*((0, size - 1) for size in view.shape))
        reach = [
            sum(index * stride for index, stride in zip(corner, view.strides, strict=True))
            for corner in corners
        ]
        if 0 in view.shape:
            reach = [-1]
        first, last = (
            view.offset + min(reach) * SIZES[view.dtype],
            view.offset + (max(reach) + 1) * SIZES[view.dtype],
        )
        if (
            last > plan.buffers[view.buffer].nbytes
            or (0 not in view.shape and first < 0)
            or view.offset < 0
        ):
            return f"{view} leaves its buffer"
    for step in plan.steps:
        if isinstance(step, Launch):
            if step.tuning and any(
                plan.buffers[view.buffer].input is not None for view in step.tuning.zeroed
            ):
                return "an input is zeroed"
            for config in step.configs:
                x, y, z = config.grid
                if not (0 <= x < 2**31 and 0 <= y < 65536 and 0 <= z < 65536):
                    return f"grid {config.grid}"
                if config.num_ctas != 1 or config.num_warps not in (1, 2, 4, 8, 16, 32):
                    return f"options {config}"
        elif plan.buffers[step.target.buffer].input is not None:
            return "an input is written"
    if [plan.buffers[index].input for index in range(len(INPUTS))] != list(range(len(INPUTS))):
        return "the inputs are not the first buffers"
    if sum(buffer.nbytes for buffer in plan.buffers) > 1 << 27:
        return "too much memory"
    if any(plan.buffers[view.buffer].input is not None for view in plan.outputs) or len(
        plan.outputs
    ) != len(OUTPUTS):
        return "the outputs are not fresh"
    if any(
        (view.shape, view.dtype) != (spec.shape, spec.dtype)
        for view, spec in zip(plan.outputs, OUTPUTS, strict=True)
    ):
        return "the outputs are not the contract's"
    return None


def try_mutations(seed: int, count: int) -> dict[str, int]:
    """Parse `count` mutated plans. Returns how many were accepted, refused, and differ from the
    original though accepted.

    Raises AssertionError for a plan that should not have been accepted, and whatever the parser
    raises besides PlanError.
    """
    rng = random.Random(seed)
    base = dump(PLAN)
    counts = {"accepted": 0, "refused": 0, "accepted_other": 0}
    for _ in range(count):
        try:
            plan = parse(mutate(base, rng), INPUTS, OUTPUTS, MODULE)
        except PlanError:
            counts["refused"] += 1
            continue
        reason = complaint(plan)
        assert reason is None, reason
        assert dump(parse(dump(plan), INPUTS, OUTPUTS, MODULE)) == dump(plan)
        counts["accepted"] += 1
        counts["accepted_other"] += plan != PLAN
    return counts
