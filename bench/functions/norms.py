"""Normalisations as people write them."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def llama_rms_norm(hidden_states, weight):
    input_dtype = hidden_states.dtype
    hidden_states = hidden_states.to(torch.float32)
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    hidden_states = hidden_states * torch.rsqrt(variance + 1e-6)
    return weight * hidden_states.to(input_dtype)


def gemma_norm(x, weight):
    out = x.float() * torch.rsqrt(x.float().square().mean(dim=-1, keepdim=True) + 1e-6)
    return (out * (1.0 + weight.float())).type_as(x)


def layer_norm_manual(x, gamma, beta, eps: float = 1e-5):
    mu = x.mean(-1, keepdim=True)
    var = ((x - mu) ** 2).mean(-1, keepdim=True)
    return gamma * (x - mu) / torch.sqrt(var + eps) + beta


def layer_norm_no_affine(x):
    return F.layer_norm(x, x.shape[-1:])


def pre_norm_residual(x, residual, weight, bias):
    """add, then layer norm; returns both"""
    h = x + residual
    return F.layer_norm(h, (h.size(-1),), weight, bias, 1e-5), h


def rms_then_gate(x, z, weight):
    """the gated norm of state space models"""
    x = x * F.silu(z)
    return F.rms_norm(x, (x.shape[-1],), weight, 1e-5)


def unit_vectors(x):
    return F.normalize(x, p=2.0, dim=-1, eps=1e-12)


def group_norm_silu(x, weight, bias):
    return F.silu(F.group_norm(x, 32, weight, bias, 1e-6))


def channel_norm(x, weight, bias):
    # "LayerNorm2d" of ConvNeXt: over the channels of an image
    u = x.mean(1, keepdim=True)
    s = (x - u).pow(2).mean(1, keepdim=True)
    x = (x - u) / torch.sqrt(s + 1e-6)
    return weight[:, None, None] * x + bias[:, None, None]


def instance_norm(x):
    return F.instance_norm(x, eps=1e-5)


def adaln_modulate(x, shift, scale):
    x = F.layer_norm(x, (x.shape[-1],), eps=1e-6)
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


def standardize(x):
    return (x - x.mean(dim=1, keepdim=True)) / (x.std(dim=1, keepdim=True) + 1e-8)


def deep_norm(x, sublayer, weight, bias):
    alpha = 2.213
    return F.layer_norm(alpha * x + sublayer, (x.shape[-1],), weight, bias)


def scale_norm(x, g):
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True) * x.shape[-1] ** -0.5
    return g * x / norm.clamp(min=1e-5)


def qk_norm(q, q_weight):
    # q: batch, seq, heads, dim
    v = q.float()
    v = v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + 1e-6)
    return (v * q_weight.float()).to(q.dtype)


def global_response_norm(x, gamma, beta):
    # x: batch, height, width, channels
    gx = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
    nx = gx / (gx.mean(dim=-1, keepdim=True) + 1e-6)
    return gamma * (x * nx) + beta + x


def batch_norm_eval_relu(x, mean, var, weight, bias):
    return torch.relu(F.batch_norm(x, mean, var, weight, bias, training=False, eps=1e-3))


class TokenNorm(nn.Module):
    """a module of one's own"""

    def __init__(self, dim: int = 256):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = 1e-6

    def forward(self, x):
        return x / (x.abs().mean(-1, keepdim=True) + self.eps) * self.weight


def quarter_rms_norm(x, w):
    # only the first quarter of the features decides about the scale
    k = x.shape[-1] // 4
    ms = x[..., :k].float().pow(2).mean(-1, keepdim=True)
    return (x.float() * torch.rsqrt(ms + 1e-6)).to(x.dtype) * w
