"""Candidates by structure: rows, loops, tiles, grids, tuning decorators. Texts only."""

from __future__ import annotations

WHOLE_ROW = '''
"""Softmax, one program a row."""

@triton.jit
def softmax_kernel(x_ptr, out_ptr, stride, n_cols, BLOCK: tl.constexpr):
    """The whole row at once."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=-float("inf")).to(tl.float32)
    x = x - tl.max(x, axis=0)
    e = tl.exp(x)
    tl.store(out_ptr + row * stride + cols, (e / tl.sum(e, axis=0)).to(out_ptr.dtype.element_ty), mask=mask)


def run(x: torch.Tensor) -> torch.Tensor:
    assert x.is_cuda and x.dim() == 2, f"unexpected input {x.shape}"
    x = x.contiguous()
    n_rows, n_cols = x.shape
    out = torch.empty_like(x)
    BLOCK = triton.next_power_of_2(n_cols)
    num_warps = 4
    if BLOCK >= 2048:
        num_warps = 8
    softmax_kernel[(n_rows,)](x, out, x.stride(0), n_cols, BLOCK=BLOCK, num_warps=min(max(num_warps, 1), 16))
    return out
'''

LOOPED = """
import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def rms_kernel(X, W, Y, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        v = tl.load(X + row * N + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc += v * v
    scale = tl.rsqrt(tl.sum(acc, axis=0) / N + eps)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < N
        v = tl.load(X + row * N + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        w = tl.load(W + cols, mask=mask).to(tl.float32)
        tl.store(Y + row * N + cols, (v * scale * w).to(Y.dtype.element_ty), mask=mask)


def run(x, w):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    rms_kernel[(M,)](x, w, y, N, 1e-6, BLOCK=BLOCK, num_warps=8)
    return y


if __name__ == "__main__":
    x = torch.randn(4, 4, device="cuda")
    print(run(x, x[0]))
"""

SEVERAL_ROWS = """
@triton.jit
def tile(x, y, M, N, ROWS: tl.constexpr, COLS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    c = tl.arange(0, COLS)[None, :]
    mask = (r < M) & (c < N)
    v = tl.load(x + r * N + c, mask=mask, other=0.0).to(tl.float32)
    norm = tl.sqrt(tl.sum(v * v, axis=1, keep_dims=True))
    tl.store(y + r * N + c, (v / tl.maximum(norm, 1e-12)).to(y.dtype.element_ty), mask=mask)

def run(x):
    M, N = x.shape
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    ROWS = 4 if N <= 1024 else 1
    tile[(triton.cdiv(M, ROWS), 1, 1)](x, y, M, N, ROWS, triton.next_power_of_2(N), num_warps=4)
    return y
"""

FLAT = """
INV_SQRT2 = tl.constexpr(0.7071067811865476)
HALF = tl.constexpr(1 / 2)

@triton.jit
def gelu(x_ptr, o_ptr, n, BLOCK: tl.constexpr = 1024):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(o_ptr + offs, (x * HALF * (1.0 + tl.erf(x * INV_SQRT2))).to(o_ptr.dtype.element_ty), mask=offs < n)

def run(x):
    flat = x.view(-1)
    out = torch.empty_like(flat)
    n = flat.numel()
    grid = lambda META: (triton.cdiv(n, META["BLOCK"]),)
    gelu[grid](flat, out, n)
    return out.reshape(x.shape)
"""

TWO_KERNELS = """
@triton.jit
def partial(x, part, N, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    row, piece = tl.program_id(0), tl.program_id(1)
    c = piece * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * N + c, mask=c < N, other=0.0).to(tl.float32)
    tl.store(part + row * SPLIT + piece, tl.sum(v * v, axis=0))

@triton.jit
def scale(x, part, w, y, N, eps, SPLIT: tl.constexpr, PIECES: tl.constexpr, BLOCK: tl.constexpr):
    row, piece = tl.program_id(0), tl.program_id(1)
    s = tl.load(part + row * SPLIT + tl.arange(0, PIECES), mask=tl.arange(0, PIECES) < SPLIT, other=0.0)
    r = 1.0 / tl.sqrt(tl.sum(s, axis=0) / N + eps)
    c = piece * BLOCK + tl.arange(0, BLOCK)
    m = c < N
    v = tl.load(x + row * N + c, mask=m).to(tl.float32) * tl.load(w + c, mask=m).to(tl.float32) * r
    tl.store(y + row * N + c, v.to(y.dtype.element_ty), mask=m)

def pieces(n, block):
    return (n + block - 1) // block

def run(x, w):
    M, N = x.shape
    split = pieces(N, 128)
    part = torch.empty((M, split), dtype=torch.float32, device=x.device)
    y = torch.empty_like(x)
    partial[(M, split)](x, part, N, SPLIT=split, BLOCK=128)
    scale[(M, split)](x, part, w, y, N, 1e-6, SPLIT=split, PIECES=triton.next_power_of_2(split), BLOCK=128)
    return y
"""

AUTOTUNE = """
def configs():
    return [triton.Config({"BLOCK": b}, num_warps=w, num_stages=2) for b in (256, 512) for w in (4, 8)]

@triton.autotune(configs=configs(), key=["n"], reset_to_zero=["y"])
@triton.jit
def silu(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(tl.float32)
    tl.store(y + i, (v * tl.sigmoid(v)).to(y.dtype.element_ty), mask=i < n)

def run(x):
    y = torch.empty_like(x)
    silu[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y
"""

HEURISTICS = """
@triton.heuristics({
    "BLOCK": lambda args: triton.next_power_of_2(args["N"]),
    "EVEN": lambda args: args["N"] % 16 == 0,
    "num_warps": lambda args: 8 if args["N"] > 2048 else 4,
})
@triton.jit
def relu2(x, y, N, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    c = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    if EVEN:
        v = tl.load(x + row * N + c, mask=c < N)
    else:
        v = tl.load(x + row * N + c, mask=c < N, other=0.0)
    v = tl.maximum(v.to(tl.float32), 0.0)
    tl.store(y + row * N + c, (v * v).to(y.dtype.element_ty), mask=c < N)

def run(x):
    y = torch.empty_like(x)
    relu2[(x.shape[0],)](x, y, x.shape[1])
    return y
"""

AUTOTUNE_OF_HEURISTICS = """
@triton.autotune(configs=[triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 512}, num_warps=8)], key=["N"])
@triton.heuristics({"LOOPS": lambda a: triton.cdiv(a["N"], a["BLOCK"])})
@triton.jit
def tanh_kernel(x, y, N, BLOCK: tl.constexpr, LOOPS: tl.constexpr):
    row = tl.program_id(0)
    for i in tl.static_range(LOOPS):
        c = i * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(x + row * N + c, mask=c < N).to(tl.float32)
        tl.store(y + row * N + c, (2.0 * tl.sigmoid(2.0 * v) - 1.0).to(y.dtype.element_ty), mask=c < N)

def run(x):
    y = torch.empty(x.shape, device="cuda", dtype=x.dtype)
    tanh_kernel[(x.shape[0],)](x, y, x.size(1))
    return y
"""

STRIDED_GRID = """
@triton.jit
def swiglu(gate, up, out, sgm, sgn, sum_, sun, som, son, N, BLOCK: tl.constexpr):
    m = tl.program_id(0)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + m * sgm + n * sgn, mask=n < N, other=0.0).to(tl.float32)
    u = tl.load(up + m * sum_ + n * sun, mask=n < N, other=0.0).to(tl.float32)
    tl.store(out + m * som + n * son, (g * tl.sigmoid(g) * u).to(out.dtype.element_ty), mask=n < N)

def run(gate, up):
    M, N = gate.shape
    out = gate.new_empty((M, N))
    grid = (M, triton.cdiv(N, 256))
    swiglu[grid](gate, up, out, *gate.stride(), *up.stride(), *out.stride(), N, BLOCK=256)
    return out
"""
