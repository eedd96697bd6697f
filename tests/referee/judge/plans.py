"""Launch plans written by hand, for tests that must not depend on the tracer."""

from __future__ import annotations

from math import prod

import torch

from referee.plans.plan import Argument, Buffer, Launch, LaunchConfig, LaunchPlan, Step, Value, View

HEADER = "import triton\nimport triton.language as tl\n\n"


def dense(buffer: int, shape: tuple[int, ...], dtype: str, offset: int = 0) -> View:
    """A contiguous view."""
    return View(
        buffer, offset, shape, tuple(prod(shape[i + 1 :]) for i in range(len(shape))), dtype
    )


def buffers_of(*views: View, inputs: int) -> tuple[Buffer, ...]:
    """One exact buffer per dense view; the first `inputs` are inputs."""
    sizes = (prod(view.shape) * getattr(torch, view.dtype).itemsize for view in views)
    return tuple(
        Buffer(size, index if index < inputs else None) for index, size in enumerate(sizes)
    )


def launch(
    kernel: str, grid: tuple[int, int, int], constants: dict[str, Value], **arguments: Value
) -> Launch:
    """A launch with one configuration."""
    given = [Argument(name, value, False) for name, value in arguments.items()]
    given += [Argument(name, value, True) for name, value in constants.items()]
    return Launch(kernel, (LaunchConfig(grid, tuple(given)),))


def rowwise(
    kernel: str,
    shape: tuple[int, int],
    dtype: str,
    *,
    block: int,
    inputs: int = 1,
    extra: tuple[Step, ...] = (),
) -> LaunchPlan:
    """The common case: one program a row, arguments x0.. out N BLOCK, one output like the inputs."""
    views = tuple(dense(index, shape, dtype) for index in range(inputs + 1))
    pointers = {**{f"x{i}": view for i, view in enumerate(views[:-1])}, "out": views[-1]}
    step = launch(kernel, (shape[0], 1, 1), {"BLOCK": block}, **pointers, n=shape[1])
    return LaunchPlan(buffers_of(*views, inputs=inputs), views[:-1], (*extra, step), views[-1:])
