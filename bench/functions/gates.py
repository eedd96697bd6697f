"""Activations and gated units as people write them."""

import math

import torch
import torch.nn.functional as F


def swiglu_packed(x):
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


def geglu_packed(x):
    a, b = x.chunk(2, dim=-1)
    return a * F.gelu(b)


def silu_mul_clamped(gate, up):
    gate = gate.clamp(max=7.0)
    up = up.clamp(min=-7.0, max=7.0)
    return (up + 1) * gate * torch.sigmoid(1.702 * gate)


def quick_gelu(x):
    return x * torch.sigmoid(1.702 * x)


def new_gelu(x):
    return (
        0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
    )


def bias_gelu_residual(x, bias, residual):
    return F.gelu(x + bias, approximate="tanh") + residual


def squared_relu_scaled(x, scale):
    return torch.square(F.relu(x)) * scale


def snake(x, alpha):
    # x: batch, channels, time
    a = alpha[None, :, None]
    return x + torch.sin(a * x) ** 2 / (a + 1e-9)


def prelu_channels(x, weight):
    return torch.where(x > 0, x, weight.view(1, -1, 1, 1) * x)


def soft_cap(scores):
    return 30.0 * torch.tanh(scores / 30.0)


def mish_by_hand(x):
    return x * torch.tanh(torch.log(1 + torch.exp(x)))


def layer_scale_residual(x, branch, gamma, keep):
    """stochastic depth with a given mask: keep is (batch, 1, 1)"""
    return x + branch * gamma * keep / 0.9


def lerp_tokens(x, shifted, mix):
    return x + (shifted - x) * mix


def glu_sigmoid_bias(x, bias):
    a, b = (x + bias).chunk(2, -1)
    return a * b.sigmoid()


def dropout_mask_residual(x, mask, residual):
    return residual + torch.where(mask, x / 0.9, torch.zeros_like(x))


def clamped_swiglu(x, alpha: float = 1.702, limit: float = 7.0):
    gate, up = x[..., ::2], x[..., 1::2]
    gate = gate.clamp(min=None, max=limit)
    up = up.clamp(min=-limit, max=limit)
    return (up + 1) * gate * torch.sigmoid(gate * alpha)


def two_experts(logits):
    top = torch.softmax(logits.float(), dim=-1).topk(2, dim=-1)
    return top.values / top.values.sum(-1, keepdim=True), top.indices
