"""Candidates in many styles, all of which must be screened, traced and compiled; with the tensors they take and return."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from referee.ops.spec import Cell, Dtype, TensorSpec


def tensor(name: str, shape: tuple[int, ...], dtype: Dtype = "float16", offset: int = 0) -> TensorSpec:
    """A dense tensor."""
    return TensorSpec(name, shape, dtype, tuple(prod(shape[axis + 1 :]) for axis in range(len(shape))), offset)


def cell(inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> Cell:
    """A required cell."""
    return Cell("cell", inputs, outputs, "normal", (1.0,) * len(inputs), "required")


def rows(names: str, *, extra: tuple[TensorSpec, ...] = (), shape: tuple[int, int] = (37, 257), dtype: Dtype = "float16") -> Cell:
    """Matrices of one shape, further inputs, and one output of that shape."""
    return cell((*(tensor(name, shape, dtype) for name in names.split()), *extra), (tensor("out", shape, dtype),))


@dataclass(frozen=True)
class Good:
    """A candidate and one cell for it."""

    source: str
    cell: Cell


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

HELPERS = """
@triton.jit
def _exp_minus_one(x):
    return tl.exp(x) - 1.0

@triton.jit
def _elu(x, ALPHA: tl.constexpr):
    return tl.where(x > 0, x, ALPHA * _exp_minus_one(x))

@triton.jit(do_not_specialize=["n"])
def elu(x, y, n, ALPHA: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(tl.float32)
    tl.store(y + i, _elu(v, ALPHA).to(y.dtype.element_ty), mask=i < n)

def run(x):
    y = torch.empty_like(x)
    elu[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), ALPHA=1.0, BLOCK=512)
    return y
"""

LIBDEVICE = """
import math
from triton.language.extra import libdevice
from triton.language.extra.cuda.libdevice import tanh as cuda_tanh

LN2 = tl.constexpr(math.log(2.0))
exp2 = tl.math.exp2

@triton.jit
def mixed(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(tl.float32)
    v = libdevice.erf(v) + cuda_tanh(v) + tl.extra.libdevice.log1p(tl.abs(v)) + exp2(-tl.abs(v)) * LN2 + math.pi
    tl.store(y + i, v.to(y.dtype.element_ty), mask=i < n)

def run(x):
    y = torch.empty_like(x)
    mixed[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), 256)
    return y
"""

CONSTEXPR_DTYPE = """
from typing import Optional

TYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}
ACC = tl.float32

@triton.jit
def square(x, y, n, OUT: tl.constexpr, SCALE: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr = tl.float32):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(WIDE)
    acc = tl.zeros((BLOCK,), dtype=ACC) + v * v * SCALE
    tl.store(y + i, acc.to(OUT), mask=i < n)

def run(x, bias: Optional[torch.Tensor] = None):
    y = torch.empty_like(x)
    square[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), OUT=TYPES[x.dtype], SCALE=tl.constexpr(1.0), BLOCK=128)
    return y
"""

SCRATCH = """
@triton.jit
def count(x, total, N, BLOCK: tl.constexpr):
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * N + c, mask=c < N, other=0.0).to(tl.float32)
    tl.atomic_add(total + tl.program_id(0), tl.sum(v, axis=0), sem="relaxed")

@triton.jit
def divide(x, total, y, N, BLOCK: tl.constexpr):
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(0)
    v = tl.load(x + row * N + c, mask=c < N).to(tl.float32) / tl.load(total + row)
    tl.store(y + row * N + c, v.to(y.dtype.element_ty), mask=c < N)

@torch.no_grad()
def run(x):
    M, N = x.shape
    total = torch.zeros(M, dtype=torch.float32, device=x.device)
    low = torch.full((M,), float("-inf"), device=x.device)
    low.fill_(1.5)
    y = torch.empty_like(x)
    count[(M, triton.cdiv(N, 128))](x, total, N, BLOCK=128)
    divide[(M, triton.cdiv(N, 128))](x, total, y, N, BLOCK=128)
    return y
"""

OPTIONAL = """
@triton.jit
def act(x, bias, y, N, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * N + c, mask=c < N).to(tl.float32)
    if bias is not None:
        v += tl.load(bias + c, mask=c < N).to(tl.float32)
    if ACTIVATION == "relu":
        v = tl.maximum(v, 0.0)
    elif ACTIVATION == "square":
        v = v * v
    else:
        tl.static_assert(False, "unknown activation")
    tl.store(y + row * N + c, v.to(y.dtype.element_ty), mask=c < N)

def run(x):
    y = torch.empty_like(x)
    act[(x.shape[0],)](x, None, y, x.shape[1], ACTIVATION="relu", BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
"""

TUPLES = """
@triton.jit
def add(tensors, y, strides, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    a = tl.load(tensors[0] + row * strides[0] + c * strides[1], mask=c < n)
    b = tl.load(tensors[1] + row * strides[0] + c * strides[1], mask=c < n)
    tl.store(y + row * strides[0] + c, a + b, mask=c < n)

def run(x, residual):
    y = torch.empty_like(x)
    add[(x.shape[0],)]((x, residual), y, x.stride(), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
"""

OFFSET_VIEWS = """
@triton.jit
def rotate(a, b, oa, ob, stride, H, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    m = c < H
    u = tl.load(a + row * stride + c, mask=m)
    v = tl.load(b + row * stride + c, mask=m)
    tl.store(oa + row * stride + c, -v, mask=m)
    tl.store(ob + row * stride + c, u, mask=m)

def run(x):
    M, D = x.shape
    half = D // 2
    out = torch.empty_like(x)
    left, right = x[:, :half], x[:, half:]
    rotate[(M,)](left, right, out[:, :half], out.narrow(1, half, half), x.stride(0), half, BLOCK=triton.next_power_of_2(half))
    return out
"""

DATA_MOVEMENT = """
@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)

def run(x):
    wide = x.float().t().contiguous()
    result = torch.zeros_like(wide)
    double[(triton.cdiv(wide.numel(), 128),)](wide, result, wide.numel(), BLOCK=128)
    out = torch.empty_like(x)
    out.copy_(result.t())
    return out
"""

PERSISTENT = """
@triton.jit
def persistent(x, y, M, N, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    while row < M:
        v = tl.load(x + row * N + c, mask=c < N)
        tl.store(y + row * N + c, tl.clamp(v.to(tl.float32), -1.0, 1.0).to(y.dtype.element_ty), mask=c < N)
        row += PROGRAMS

def run(x):
    device = torch.device("cuda")
    props = torch.cuda.get_device_properties(x.device)
    sms = triton.runtime.driver.active.utils.get_device_properties(torch.cuda.current_device())["multiprocessor_count"]
    assert sms == props.multi_processor_count and torch.cuda.get_device_capability()[0] >= 7
    y = torch.empty(x.size(), dtype=x.dtype, device=device)
    programs = min(x.shape[0], sms * 2)
    with torch.cuda.device(x.device.index):
        persistent[(programs,)](x, y, x.shape[0], x.shape[1], PROGRAMS=programs, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
"""

KEYWORDS = """
@triton.jit
def softsign(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(pointer=y_ptr + offsets, value=(x / (1 + tl.abs(x))).to(y_ptr.dtype.element_ty), mask=mask)

def run(x):
    y = torch.empty_like(x)
    options = dict(num_warps=8, num_stages=2, maxnreg=64)
    softsign[[triton.cdiv(x.numel(), 1024)]](y_ptr=y, x_ptr=x, BLOCK_SIZE=1024, n_elements=x.numel(), **options)
    return y
"""

SCANS = """
@triton.jit
def plus(a, b):
    return a + b

@triton.jit
def combine(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    delta = mean_b - mean_a
    count = count_a + count_b
    ratio = tl.where(count == 0.0, 0.0, count_b / count)
    return mean_a + delta * ratio, m2_a + m2_b + delta * delta * count_a * ratio, count

@triton.jit
def scan(x, y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    m = c < N
    v = tl.load(x + row * N + c, mask=m, other=0.0).to(tl.float32)
    mean, m2, count = tl.reduce((v, tl.zeros_like(v), m.to(tl.float32)), 0, combine)
    total = tl.associative_scan(v - mean, 0, plus)
    tl.store(y + row * N + c, (total * tl.rsqrt(m2 / count + 1e-5)).to(y.dtype.element_ty), mask=m)

def run(x):
    y = torch.empty_like(x)
    scan[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
"""

TWO_OUTPUTS = """
@triton.jit
def stats(x, mean, rstd, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * N + c, mask=c < N, other=0.0).to(tl.float32)
    mu = tl.sum(v, axis=0) / N
    d = tl.where(c < N, v - mu, 0.0)
    tl.store(mean + row, mu)
    tl.store(rstd + row, tl.rsqrt(tl.sum(d * d, axis=0) / N + 1e-5))

def run(x):
    M, N = x.shape
    both = torch.empty((2, M), device=x.device, dtype=torch.float32)
    mean, rstd = both[0], both[1]
    stats[(M,)](x, mean, rstd, N, BLOCK=triton.next_power_of_2(N))
    return mean, rstd
"""

CROSS_ENTROPY = """
@triton.jit
def loss(logits, targets, out, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    peak = -float("inf")
    total = 0.0
    for start in tl.range(0, N, BLOCK, num_stages=2):
        c = start + tl.arange(0, BLOCK)
        v = tl.load(logits + row * N + c, mask=c < N, other=-float("inf")).to(tl.float32)
        new = tl.maximum(peak, tl.max(v, axis=0))
        total = total * tl.exp(peak - new) + tl.sum(tl.exp(v - new), axis=0)
        peak = new
    t = tl.load(targets + row)
    picked = tl.load(logits + row * N + t).to(tl.float32)
    tl.store(out + row, (peak + tl.log(total) - picked).to(out.dtype.element_ty))

def run(x, tgt):
    M, N = x.shape
    out = torch.empty((M,), dtype=x.dtype, device=x.device)
    loss[(M,)](x, tgt, out, N, BLOCK=256)
    return out
"""

DEQUANT = """
@triton.jit
def dequant(q, s, o, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    scale = tl.load(s + row)
    v = tl.load(q + row * N + c, mask=c < N, other=0).to(scale.dtype)
    tl.store(o + row * N + c, v * scale, mask=c < N)

def run(q, scale):
    M, N = q.shape
    out = torch.empty(M, N, dtype=torch.float16, device=q.device)
    dequant[M, triton.cdiv(N, 512)](q, scale, out, N, BLOCK=512)
    return out
"""

EARLY_RETURN = """
@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)

def run(x):
    y = torch.empty_like(x)
    if x.numel() == 0:
        return y
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
"""

_WEIGHT = (tensor("w", (257,)),)

GOOD: dict[str, Good] = {
    "whole_row": Good(WHOLE_ROW, rows("x")),
    "looped": Good(LOOPED, rows("x", extra=_WEIGHT)),
    "several_rows": Good(SEVERAL_ROWS, rows("x", dtype="float32")),
    "flat": Good(FLAT, rows("x", dtype="bfloat16")),
    "two_kernels": Good(TWO_KERNELS, rows("x", extra=_WEIGHT)),
    "autotune": Good(AUTOTUNE, rows("x")),
    "heuristics": Good(HEURISTICS, rows("x")),
    "autotune_of_heuristics": Good(AUTOTUNE_OF_HEURISTICS, rows("x")),
    "strided_grid": Good(STRIDED_GRID, rows("gate up")),
    "helpers": Good(HELPERS, rows("x")),
    "libdevice": Good(LIBDEVICE, rows("x")),
    "constexpr_dtype": Good(CONSTEXPR_DTYPE, rows("x", dtype="bfloat16")),
    "scratch": Good(SCRATCH, rows("x")),
    "optional": Good(OPTIONAL, rows("x")),
    "tuples": Good(TUPLES, rows("x residual")),
    "offset_views": Good(OFFSET_VIEWS, rows("x", shape=(5, 128))),
    "data_movement": Good(DATA_MOVEMENT, rows("x")),
    "persistent": Good(PERSISTENT, rows("x")),
    "keywords": Good(KEYWORDS, rows("x")),
    "scans": Good(SCANS, rows("x")),
    "two_outputs": Good(TWO_OUTPUTS, cell((tensor("x", (37, 257)),), (tensor("mean", (37,), "float32"), tensor("rstd", (37,), "float32")))),
    "cross_entropy": Good(CROSS_ENTROPY, cell((tensor("x", (37, 513)), tensor("tgt", (37,), "int64")), (tensor("out", (37,)),))),
    "dequant": Good(DEQUANT, cell((tensor("q", (37, 513), "int8"), tensor("scale", (37, 1))), (tensor("out", (37, 513)),))),
    "early_return": Good(EARLY_RETURN, rows("x", shape=(0, 257))),
    "offset_input": Good(EARLY_RETURN, cell((tensor("x", (3, 5), offset=3),), (tensor("out", (3, 5)),))),
}
