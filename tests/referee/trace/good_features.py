"""Candidates by the feature of Triton they use. Texts only."""

from __future__ import annotations

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
    low = torch.full((M,), float("-inf"), dtype=torch.float32, device=x.device)
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
    y = torch.empty_like(y, device=x.device.index)
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
