"""The two example kernels of the prompts, in the form that each prompt dialect expects.

The public smiths learned to copy the structure of one row-wise reduction kernel. It has one program
a row, a loop over the row in blocks of 1024, sums in float32, and no imports. An elementwise
example would teach them elementwise code for reductions. The kernels are complete and correct for
contiguous rows; the tests judge them like any draft.
"""

from __future__ import annotations

from typing import Literal

Dialect = Literal["card", "trained"]
DIALECTS: tuple[Dialect, ...] = ("card", "trained")

_RMSNORM_KERNEL = """\
@triton.jit
def _rmsnorm_kernel(x_ptr, w_ptr, y_ptr, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * N
    y_row = y_ptr + row * N
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc += x * x
    scale = tl.rsqrt(tl.sum(acc, axis=0) / N + eps)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < N
        x = tl.load(x_row + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_row + cols, (x * scale * w).to(y_ptr.dtype.element_ty), mask=mask)
"""

_SOFTMAX_KERNEL = """\
@triton.jit
def _softmax_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * N
    y_row = y_ptr + row * N
    high = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
        high = tl.maximum(high, x)
    top = tl.max(high, axis=0)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
        acc += tl.exp(x - top)
    total = tl.sum(acc, axis=0)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < N
        x = tl.load(x_row + cols, mask=mask, other=-float("inf")).to(tl.float32)
        tl.store(y_row + cols, (tl.exp(x - top) / total).to(y_ptr.dtype.element_ty), mask=mask)
"""

_CARD = {
    "rmsnorm": _RMSNORM_KERNEL
    + """

def run(x, w):
    M, N = x.shape
    y = torch.empty_like(x)
    _rmsnorm_kernel[(M,)](x, w, y, N, 1e-6, BLOCK=1024)
    return y
""",
    "softmax": _SOFTMAX_KERNEL
    + """

def run(x):
    M, N = x.shape
    y = torch.empty_like(x)
    _softmax_kernel[(M,)](x, y, N, BLOCK=1024)
    return y
""",
}

_TRAINED = {
    "rmsnorm": """\
# rmsnorm: y = x / sqrt(mean(x^2) + 1e-6) * w, over the last dimension.
# One program per row; the row is read in blocks, the sum of squares is kept in float32.
"""
    + _RMSNORM_KERNEL
    + """

def run(x, w):
    M, N = x.shape
    y = torch.empty_like(x)
    BLOCK = 1024
    _rmsnorm_kernel[(M,)](x, w, y, N, 1e-6, BLOCK=BLOCK)
    return y
""",
    "softmax": """\
# softmax: y = exp(x - max(x)) / sum(exp(x - max(x))), over the last dimension.
# One program per row; the row is read in blocks, maximum and sum are kept in float32.
"""
    + _SOFTMAX_KERNEL
    + """

def run(x):
    M, N = x.shape
    y = torch.empty_like(x)
    BLOCK = 1024
    _softmax_kernel[(M,)](x, y, N, BLOCK=BLOCK)
    return y
""",
}


def exemplar_for(op_name: str) -> str:
    """The operation whose kernel the prompt shows: rmsnorm, or softmax for rmsnorm itself."""
    return "softmax" if op_name == "rmsnorm" else "rmsnorm"


def exemplar_source(op_name: str, dialect: Dialect) -> str:
    """Source of the example kernel "rmsnorm" or "softmax" in one dialect; it ends in a newline."""
    return (_CARD if dialect == "card" else _TRAINED)[op_name]
