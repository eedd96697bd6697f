"""Hand-written kernels with hand-written plans, right and wrong, for trying the GPU half of the
referee alone.

The installed Triton compiles them directly, without a sandbox and a tracer. One program handles one
row, and one block holds the row. Building them needs no GPU; running them does. The wrong ones are
plain slips and plain abuse, each for one guard of the replayer.
"""

# mypy: ignore-errors
from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from referee import ops
from referee.compiling.binaries import Binary
from referee.gpu.jobs import CompiledCandidate, ReplayJob
from referee.ops.spec import Cell
from referee.plans.plan import Argument, Buffer, Launch, LaunchConfig, LaunchPlan, View
from referee.plans.plan_check import extent, input_nbytes, input_view
from referee.problem import TaskName

SHORT = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int64": "i64", "int8": "i8"}
ITEM = {"float32": 4, "float16": 2, "bfloat16": 2}


@triton.jit
def rmsnorm(x, w, out, rows, columns, BLOCK: tl.constexpr):  # noqa: N803
    row = (tl.program_id(0) % rows).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v, axis=0) / columns + 1e-6)
    weight = tl.load(w + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * columns + at, (v * scale * weight).to(out.dtype.element_ty), mask=inside)


@triton.jit
def softmax(x, out, rows, columns, BLOCK: tl.constexpr):  # noqa: N803
    row = (tl.program_id(0) % rows).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * columns + at, mask=inside, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(
        out + row * columns + at, (e / tl.sum(e, axis=0)).to(out.dtype.element_ty), mask=inside
    )


@triton.jit
def relu2(x, out, rows, columns, BLOCK: tl.constexpr):  # noqa: N803
    row = (tl.program_id(0) % rows).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.maximum(tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32), 0.0)
    tl.store(out + row * columns + at, (v * v).to(out.dtype.element_ty), mask=inside)


@triton.jit
def wrong_formula(x, out, rows, columns, BLOCK: tl.constexpr):  # noqa: N803
    row = tl.program_id(0) % rows
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * columns + at, (v * v).to(out.dtype.element_ty), mask=inside)


@triton.jit
def leaves_calls_out(x, out, rows, columns, BLOCK: tl.constexpr):  # noqa: N803
    row = (tl.program_id(0) % rows).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    # The first row decides which calls are left out, about one in eight, so that repeated calls
    # behave the same.
    first = tl.load(x + at, mask=inside, other=0.0)
    if tl.sum((first > 0.5).to(tl.int32), axis=0) % 8 != 0:
        v = tl.maximum(tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32), 0.0)
        tl.store(out + row * columns + at, (v * v).to(out.dtype.element_ty), mask=inside)
    else:
        tl.store(out + row * columns + at, tl.zeros((BLOCK,), out.dtype.element_ty), mask=inside)


@triton.jit
def beyond_the_end(x, out, rows, columns, BLOCK: tl.constexpr):  # noqa: N803
    row = tl.program_id(0) % rows
    at = tl.arange(0, BLOCK)
    v = tl.maximum(
        tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32), 0.0
    )
    tl.store(out + row * columns + at, (v * v).to(out.dtype.element_ty), mask=at < columns)
    tl.store(
        out + rows * columns + at,
        (v * v).to(out.dtype.element_ty),
        mask=(at < 8) & (row == rows - 1),
    )


@triton.jit
def writes_its_input(x, out, rows, columns, BLOCK: tl.constexpr):  # noqa: N803
    row = tl.program_id(0) % rows
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.maximum(tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32), 0.0)
    tl.store(out + row * columns + at, (v * v).to(out.dtype.element_ty), mask=inside)
    tl.store(x + row * columns + at, v.to(out.dtype.element_ty), mask=inside)


@triton.jit
def reads_what_nobody_wrote(x, out, rows, columns, BLOCK: tl.constexpr):  # noqa: N803
    row = tl.program_id(0) % rows
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.maximum(tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32), 0.0)
    stale = tl.load(out + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    # NaN compares false, so the first poison is swallowed and only the second run shows it.
    tl.store(
        out + row * columns + at,
        tl.where(stale > 1e4, stale, v * v).to(out.dtype.element_ty),
        mask=inside,
    )


@triton.jit
def far_outside(x, out, rows, columns, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < columns, other=0.0)
    tl.store(out + tl.full((BLOCK,), 1 << 44, tl.int64) + at, v)


@triton.jit
def never_ends(x, out, rows, columns, BLOCK: tl.constexpr):  # noqa: N803
    v = tl.load(x, volatile=True).to(tl.float32)
    while v == v:
        v = tl.load(x, volatile=True).to(tl.float32)
    tl.store(out, v.to(out.dtype.element_ty))


KERNELS: dict[str, Any] = {
    "rmsnorm": rmsnorm,
    "softmax": softmax,
    "relu2": relu2,
    "wrong_formula": wrong_formula,
    "leaves_calls_out": leaves_calls_out,
    "beyond_the_end": beyond_the_end,
    "writes_its_input": writes_its_input,
    "reads_what_nobody_wrote": reads_what_nobody_wrote,
    "far_outside": far_outside,
    "never_ends": never_ends,
}
WARPS = (4, 8, 16)


def _row_bytes(cell: Cell) -> int:
    return cell.inputs[0].shape[-1]


def _contiguous(cell: Cell) -> bool:
    return all(spec.offset == 0 for spec in cell.inputs) and (
        not cell.inputs[0].strides or cell.inputs[0].strides[0] == _row_bytes(cell)
    )


def usable_cells(op: str) -> tuple[Cell, ...]:
    """The op's gpu cells that these kernels promise to handle: contiguous ones with rows that fit a
    block.
    """
    return tuple(cell for cell in ops.cells(ops.get(op), profile="gpu") if _contiguous(cell))


def small_cell(op: str) -> Cell:
    """The largest of these that is required and has at most 1,100 rows."""
    required = (
        cell
        for cell in usable_cells(op)
        if cell.role != "capability" and cell.inputs[0].shape[0] <= 1100
    )
    return max(required, key=lambda cell: math.prod(cell.inputs[0].shape))


def bench_cell(op: str) -> Cell:
    """The op's timed cell."""
    return next(cell for cell in ops.cells(ops.get(op), profile="gpu") if cell.role == "bench")


@functools.cache
def _compiled(
    kernel: str, pointers: tuple[str, ...], rows: int, columns: int, warps: int, arch: int
) -> tuple[Binary, int]:
    function = KERNELS[kernel]
    block = triton.next_power_of_2(max(columns, 1))
    names = function.arg_names
    kinds = [*pointers, "i32", "i32", "constexpr"]
    divisible = {(i,): [["tt.divisibility", 16]] for i in range(len(pointers))}
    divisible |= {
        (len(pointers) + i,): [["tt.divisibility", 16]]
        for i, size in enumerate((rows, columns))
        if size % 16 == 0
    }
    source = ASTSource(
        function,
        dict(zip(names, kinds, strict=True)),
        constexprs={(len(kinds) - 1,): block},
        attrs=divisible,
    )
    made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": warps})
    passed = tuple(kinds[:-1])
    paths = tuple((i,) for i in range(len(passed)))
    shared, num_warps = made.metadata.shared, made.metadata.num_warps
    return Binary(
        kernel=kernel,
        key="",
        image=made.asm["cubin"],
        name=made.metadata.name,
        shared=shared,
        num_warps=num_warps,
        registers=None,
        spills=None,
        parameters=passed,
        paths=paths,
    ), block


def job(
    kernel: str, cell: Cell, *, arch: int, warps: tuple[int, ...] = (8,), extra_rows: float = 0.0
) -> ReplayJob:
    """The kernel at a cell, one configuration for each number of warps; `extra_rows` repeats that
    share of the rows (a slow-down).
    """
    rows, columns = (*cell.inputs[0].shape, 1)[:2]
    inputs = tuple(input_view(index, spec) for index, spec in enumerate(cell.inputs))
    buffers = [Buffer(input_nbytes(spec), index) for index, spec in enumerate(cell.inputs)]
    (out,) = cell.outputs
    output = View(len(buffers), 0, out.shape, out.strides, out.dtype)
    buffers.append(Buffer(extent(out.shape, out.strides) * ITEM[out.dtype]))
    pointers = tuple(f"*{SHORT[spec.dtype]}" for spec in (*cell.inputs, out))
    configs, binaries = [], {}
    for number, count in enumerate(warps):
        binaries[0, number], block = _compiled(kernel, pointers, rows, columns, count, arch)
        values = [*inputs, output, rows, columns]
        names = KERNELS[kernel].arg_names
        arguments = [
            Argument(name, value, False) for name, value in zip(names, values, strict=False)
        ]
        grid = (round(rows * (1 + extra_rows)), 1, 1)
        configs.append(
            LaunchConfig(grid, (*arguments, Argument(names[-1], block, True)), num_warps=count)
        )
    plan = LaunchPlan(tuple(buffers), inputs, (Launch(kernel, tuple(configs)),), (output,))
    return ReplayJob(cell, plan, binaries)


def prepared(
    kernel: str, op: str, cells: tuple[Cell, ...], *, arch: int, warps: tuple[int, ...] = (8,)
) -> CompiledCandidate:
    """A candidate made of one kernel for all cells of an op."""
    return CompiledCandidate(
        TaskName(op), tuple(job(kernel, cell, arch=arch, warps=warps) for cell in cells)
    )


def as_required(cell: Cell) -> Cell:
    """The same cell, required: a failure at it rejects."""
    return replace(cell, role="required")


def direct(kernel: str, warps: int = 8) -> Callable[..., torch.Tensor]:
    """The kernel called through Triton's own launcher, as a function of the inputs."""

    def call(*inputs: torch.Tensor) -> torch.Tensor:
        rows, columns = inputs[0].shape
        out = torch.empty_like(inputs[0])
        KERNELS[kernel][(rows,)](
            *inputs, out, rows, columns, BLOCK=triton.next_power_of_2(columns), num_warps=warps
        )
        return out

    return call
