"""A plan with every kind of step and value, and the cell and kernels it belongs to."""

from __future__ import annotations

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
    Tuning,
    View,
)
from referee.reading.kernels import KernelModule, extract

INPUTS = (
    TensorSpec("x", (4, 6), "float16", (8, 1), 2),
    TensorSpec("w", (6,), "float32", (1,)),
)
OUTPUTS = (TensorSpec("out", (4, 6), "float16", (6, 1)),)

MODULE: KernelModule = extract(
    "@triton.jit\ndef k(x, pair, y, n, eps, flag, none, B: tl.constexpr, D: tl.constexpr):\n    tl.store(y, n)\n"
    "@triton.jit\ndef two(y, n):\n    tl.store(y, n)\n"
)

X = View(0, 4, (4, 6), (8, 1), "float16")
W = View(1, 0, (6,), (1,), "float32")
OUT = View(2, 0, (4, 6), (6, 1), "float16")
SCRATCH = View(3, 8, (4, 3), (4, 1), "float32")


def launch_of(block: int) -> LaunchConfig:
    """One configuration of the first kernel."""
    return LaunchConfig(
        grid=(4, 1, 1),
        arguments=(
            Argument("x", X, False),
            Argument("pair", (W, (6, 1)), False),
            Argument("y", OUT, False),
            Argument("n", 6, False),
            Argument("eps", float("inf"), False),
            Argument("flag", True, False),
            Argument("none", None, False),
            Argument("B", block, True),
            Argument("D", DtypeValue("bf16"), True),
        ),
        num_warps=8,
        num_stages=2,
        maxnreg=64,
    )


PLAN = LaunchPlan(
    buffers=(Buffer(64, 0), Buffer(24, 1), Buffer(48), Buffer(68)),
    inputs=(X, W),
    steps=(
        Fill(SCRATCH, float("-inf")),
        Copy(SCRATCH, View(1, 12, (3,), (1,), "float32")),
        Launch("k", (launch_of(64), launch_of(128)), Tuning((OUT,), (SCRATCH, X))),
        Launch(
            "two", (LaunchConfig((1, 1, 1), (Argument("y", OUT, False), Argument("n", 1, True))),)
        ),
    ),
    outputs=(OUT,),
)
