"""Positions, quantisation, optimizers and data movement as people write them."""

import torch


def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary(q, cos, sin):
    # q: batch, heads, seq, dim
    return q * cos + rotate_half(q) * sin


def apply_rotary_batch(q, cos, sin):
    """cos and sin are (batch, seq, dim), q is (batch, heads, seq, dim)"""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return (q * cos) + (rotate_half(q) * sin)


def rotary_interleaved(x, cos, sin):
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack((x1 * cos - x2 * sin, x1 * sin + x2 * cos), dim=-1).flatten(-2)


def quantize_rows_int8(x):
    scale = x.abs().amax(dim=-1, keepdim=True).float() / 127.0
    scale = scale.clamp(min=1e-8)
    q = torch.round(x.float() / scale).clamp(-128, 127).to(torch.int8)
    return q, scale


def dequantize_blocks(q, scales):
    # q: rows, blocks, 64; scales: rows, blocks
    return q.float() * scales.unsqueeze(-1)


def quantize_groups(x):
    g = x.view(x.shape[0], -1, 128)
    scale = g.abs().amax(-1, keepdim=True) / 7.0 + 1e-8
    return torch.clamp(torch.round(g / scale), -8, 7).to(torch.int8).view_as(x), scale.squeeze(-1)


def embedding_scaled(ids, table):
    return table[ids] * (table.shape[-1] ** 0.5)


def position_embeddings(x, table):
    return x + table[: x.shape[1]].unsqueeze(0)


def ema_update(average, value):
    return 0.999 * average + 0.001 * value


def adamw_step(param, grad, exp_avg, exp_avg_sq):
    m = 0.9 * exp_avg + 0.1 * grad
    v = 0.95 * exp_avg_sq + 0.05 * grad * grad
    update = (m / 0.1) / ((v / 0.05).sqrt() + 1e-8)
    return param * (1 - 3e-4 * 0.1) - 3e-4 * update, m, v


def lion_step(param, grad, momentum):
    update = torch.sign(0.9 * momentum + 0.1 * grad)
    return param - 1e-4 * (update + 0.01 * param), 0.99 * momentum + 0.01 * grad


def alibi_scores(scores, slopes):
    # scores: batch, heads, query, key
    k = torch.arange(scores.shape[-1], device=scores.device)
    q = torch.arange(scores.shape[-2], device=scores.device)
    distance = (k[None, :] - q[:, None]).float()
    return scores + slopes[:, None, None] * distance


def spectral_power(real, imag):
    return torch.log1p(torch.sqrt(real * real + imag * imag))


def image_normalize(image, mean, std):
    return (image.float() / 255.0 - mean[None, :, None, None]) / std[None, :, None, None]


def boxes_area(boxes):
    # boxes: batch, 4
    return (boxes[:, 2] - boxes[:, 0]).clamp(min=0) * (boxes[:, 3] - boxes[:, 1]).clamp(min=0)


def bmm_mask_add(scores, mask):
    return scores + (1.0 - mask[:, None, None, :].to(scores.dtype)) * -10000.0


def rwkv_shift_mix(x, mix):
    shifted = torch.nn.functional.pad(x, (0, 0, 1, 0))[:, :-1]
    return x * mix + shifted * (1 - mix)


def logit_adjust(logits, prior):
    adjusted = logits + 0.5 * torch.log(prior + 1e-12)
    return adjusted - adjusted.max(dim=-1, keepdim=True).values


def partial_rotary(x, cos, sin):
    # only the first 32 of 96 are turned
    rot, rest = x[..., :32], x[..., 32:]
    a, b = rot.chunk(2, dim=-1)
    turned = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    return torch.cat((turned, rest), dim=-1)


def unpack_nibbles(packed, scales, zeros):
    # two numbers a byte, in groups of 64
    w = torch.stack(((packed & 0xF).float(), (packed >> 4).float()), dim=-1).flatten(-2)
    g = w.view(w.shape[0], -1, 64)
    return ((g - zeros[..., None]) * scales[..., None]).view_as(w)


def sliding_window(scores, window: int = 128):
    q = torch.arange(scores.size(-2)).unsqueeze(1)
    k = torch.arange(scores.size(-1)).unsqueeze(0)
    return scores.masked_fill((k > q) | (q - k >= window), -1e9)
