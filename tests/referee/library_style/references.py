"""References of the kernels in this folder that are no operation of the catalogue."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_backward(dy: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    hat, wdy = x * rstd, dy * w
    dx = rstd * (wdy - hat * (hat * wdy).mean(-1, keepdim=True))
    return dx, (dy * hat).sum(0)


def ln_backward(dy: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    centred = x - x.mean(-1, keepdim=True)
    rstd = torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
    hat, wdy = centred * rstd, dy * w
    inner = wdy - wdy.mean(-1, keepdim=True) - hat * (hat * wdy).mean(-1, keepdim=True)
    return rstd * inner, (dy * hat).sum(0), dy.sum(0)


def dequant_e4m3(q: Tensor, scale: Tensor) -> Tensor:
    return (q.float() * scale[:, None]).to(torch.bfloat16)


def dequant_e5m2_blocks(q: Tensor, scale: Tensor) -> Tensor:
    groups = q.float().view(q.shape[0], -1, 64) * scale[:, :, None]
    return groups.view(q.shape).to(torch.float16)


def quant_e5m2(x: Tensor) -> tuple[Tensor, Tensor]:
    wide = x.float()
    scale = wide.abs().amax(-1, keepdim=True).clamp(min=1e-10) / 57344.0
    return (wide / scale).clamp(-57344.0, 57344.0).to(torch.float8_e5m2), scale


def fp8_roundtrip(x: Tensor) -> Tensor:
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-10) / 448.0
    return (x / scale).to(torch.float8_e4m3fn).to(x.dtype) * scale


def sgd_momentum(p: Tensor, g: Tensor, m: Tensor, lr: float = 0.01) -> None:
    m.mul_(0.9).add_(g)
    p.sub_(lr * m)


def adamw_(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    p.mul_(1 - 1e-3 * 0.01)
    m.mul_(0.9).add_(g, alpha=1 - 0.9)
    v.mul_(0.999).add_(g * g, alpha=1 - 0.999)
    p.sub_(1e-3 * m / (v.sqrt() + 1e-8))
    return p, m, v


def silu_(x: Tensor) -> Tensor:
    return F.silu(x, inplace=True)


def write_cache(k: Tensor, cache: Tensor, slots: Tensor) -> Tensor:
    cache[slots] = k
    return cache


def fused_add_rms_norm_(x: Tensor, residual: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    residual.add_(x)
    wide = residual.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
    x.copy_(wide * w)
    return x, residual


def cross_entropy_(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    loss = F.cross_entropy(logits, labels, reduction="none", ignore_index=-100)
    grad = torch.softmax(logits, -1)
    kept = labels != -100
    rows = torch.arange(len(labels), device=labels.device)
    grad[rows, labels.clamp(min=0)] -= 1.0
    logits.copy_(grad * kept[:, None])
    return loss, logits


def scale_rows(x: Tensor, s: Tensor) -> Tensor:
    return x * s


def mse_mean(x: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(x, y)


def quant_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127.0
    return torch.round(x / scale).to(torch.int8), scale


def w8a16(x: Tensor, q: Tensor, scale: Tensor) -> Tensor:
    return ((x.float() @ q.float()) * scale.float()).to(x.dtype)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


def rope_qk_(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    q.copy_(_rotated(q, cos, sin))
    k.copy_(_rotated(k, cos, sin))
    return q, k


def group_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.group_norm(x, 8, w, b)


def _halves(a: Tensor, b: int) -> tuple[Tensor, Tensor]:
    """The high and the low 32 bits of products of 32-bit numbers in int64."""
    low, high = a & 0xFFFF, a >> 16
    least, most = low * b, high * b + ((low * b) >> 16)
    return most >> 16, ((most & 0xFFFF) << 16) | (least & 0xFFFF)


def _philox(seed: Tensor, counter: Tensor) -> Tensor:
    """The first of the four numbers of Philox-4x32-10."""
    zero = torch.zeros_like(counter)
    c0, c1, c2, c3 = counter, zero, zero, zero
    k0, k1 = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    for _ in range(10):
        high_b, low_b = _halves(c2, 0xCD9E8D57)
        high_a, low_a = _halves(c0, 0xD2511F53)
        c0, c2 = high_b ^ c1 ^ k0, high_a ^ c3 ^ k1
        c1, c3 = low_b, low_a
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0


def seeded_dropout(x: Tensor, seed: Tensor) -> Tensor:
    drawn = _philox(seed, torch.arange(x.numel(), device=x.device))
    signed = torch.where(drawn >= 1 << 31, drawn - (1 << 32), drawn)
    kept = torch.where(signed < 0, -signed - 1, signed).float() * 4.6566127342e-10 > 0.25
    return torch.where(kept, x / 0.75, 0.0)


def kl_rows(p: Tensor, q: Tensor) -> Tensor:
    return F.kl_div(p, q, reduction="none", log_target=True).sum(-1)


def jsd(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    mean = torch.log(0.5 * p.exp() + 0.5 * q.exp())
    loss = 0.5 * p.exp() * (p - mean) + 0.5 * q.exp() * (q - mean)
    return loss.sum(-1), 0.5 * p.exp() * (p - mean)


def topk_gate(x: Tensor) -> tuple[Tensor, Tensor]:
    weights, experts = torch.topk(torch.softmax(x, -1), 2)
    return weights / weights.sum(-1, keepdim=True), experts.to(torch.int32)


def embedding(table: Tensor, ids: Tensor) -> Tensor:
    return F.embedding(ids, table)


def embedding_backward(dy: Tensor, ids: Tensor) -> Tensor:
    return dy.new_zeros(7, dy.shape[1]).index_add_(0, ids, dy)


def cumsum_rows(x: Tensor) -> Tensor:
    return x.cumsum(-1)


def softmax_sink(x: Tensor, sink: Tensor) -> Tensor:
    joined = torch.cat([x, sink[None, :, None].expand(x.shape[0], -1, 1)], -1)
    return torch.softmax(joined, -1)[..., :-1]


def softmax_masked_add(x: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(x * 0.125 + mask, -1)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q.float() @ k.float().transpose(-1, -2) * q.shape[-1] ** -0.5
    return (torch.softmax(scores, -1).to(q.dtype).float() @ v.float()).to(q.dtype)


def decode_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (k * q[:, None]).sum(-1) * q.shape[-1] ** -0.5
    return (torch.softmax(scores, -1)[..., None] * v).sum(1)


def swiglu_backward(dy: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    sig = torch.sigmoid(gate)
    return dy * (gate * sig * (1 - sig) + sig) * up, dy * gate * sig


def linear_relu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.relu(x.float() @ w.float().t() + b.float()).to(x.dtype)


def logsumexp(x: Tensor) -> Tensor:
    return torch.logsumexp(x, -1)


def argmax(x: Tensor) -> Tensor:
    return x.argmax(-1)


def row_max(x: Tensor) -> Tensor:
    return x.amax(-1)


def gather_rows(x: Tensor, order: Tensor) -> Tensor:
    return x[order]


def expert_sum(y: Tensor, w: Tensor) -> Tensor:
    return (y * w[..., None]).sum(1)


def focal(x: Tensor, y: Tensor) -> Tensor:
    ce = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    p = torch.sigmoid(x)
    return 0.25 * (1 - (p * y + (1 - p) * (1 - y))).square() * ce


def batch_norm(x: Tensor, mean: Tensor, var: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.batch_norm(x, mean, var, w, b)


def causal_conv(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    padded = F.pad(x, (w.shape[1] - 1, 0))
    return F.silu(F.conv1d(padded, w[:, None], b, groups=x.shape[1]))


def recurrence(a: Tensor, x: Tensor) -> Tensor:
    hidden = [x[:, 0]]
    for step in range(1, x.shape[1]):
        hidden.append(a[:, step] * hidden[-1] + x[:, step])
    return torch.stack(hidden, -1)


def sum_float64(x: Tensor) -> Tensor:
    return x.double().sum(-1)


def double_columns(x: Tensor) -> Tensor:
    return x * 2


def histogram(x: Tensor) -> Tensor:
    return torch.stack([torch.bincount(row, minlength=16) for row in x.clamp(0, 15)]).to(
        torch.int32
    )


def gather_columns(x: Tensor, p: Tensor) -> Tensor:
    return x.gather(-1, p)


def quant_int4(x: Tensor, s: Tensor) -> Tensor:
    return torch.round(x / s).clamp(-8, 7).to(torch.int8)


def pack_int4(x: Tensor) -> Tensor:
    q = (torch.round(x * 4.0).clamp(-8, 7) + 8).to(torch.uint8)
    return q[:, ::2] | (q[:, 1::2] << 4)


def interleaved(x: Tensor, y: Tensor) -> Tensor:
    return torch.stack([x, y], -1).flatten(-2)


def log_cumulated(x: Tensor) -> Tensor:
    return torch.logcumsumexp(x, -1)


def shared_exponent(x: Tensor) -> Tensor:
    return torch.floor(torch.log2(x.abs().amax(-1).clamp(min=1e-20))).to(torch.int32)


def top4(x: Tensor) -> Tensor:
    return x.topk(4, -1).values


def parity(x: Tensor) -> Tensor:
    y = x[:, 0]
    for i in range(1, x.shape[1]):
        y = y ^ x[:, i]
    return y


def truncated_quotient(x: Tensor, s: Tensor) -> Tensor:
    return torch.trunc(x / s).to(torch.int32)
