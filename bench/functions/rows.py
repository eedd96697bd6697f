"""Softmaxes, losses and other things along a row as people write them."""

import torch
import torch.nn.functional as F


def masked_softmax(scores, mask):
    return torch.softmax(scores.masked_fill(mask == 0, float("-inf")), dim=-1)


def scaled_softmax_bias(scores, bias):
    scale = 0.125
    return F.softmax(scores * scale + bias, dim=-1, dtype=torch.float32)


def causal_softmax(scores):
    t = scores.size(-1)
    mask = torch.tril(torch.ones(t, t, device=scores.device, dtype=torch.bool))
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)


def log_softmax_temperature(logits):
    return torch.log_softmax(logits / 0.7, dim=-1)


def cross_entropy_rows(logits, labels):
    return F.cross_entropy(logits, labels, reduction="none")


def token_logprobs(logits, tokens):
    logp = torch.log_softmax(logits.float(), dim=-1)
    return torch.gather(logp, -1, tokens.unsqueeze(-1)).squeeze(-1)


def cross_entropy_mean(logits, labels):
    return F.cross_entropy(logits.float(), labels)


def z_loss(logits):
    return 1e-4 * torch.logsumexp(logits.float(), dim=-1).square()


def entropy(logits):
    p = torch.softmax(logits, -1)
    return -(p * torch.log(p + 1e-9)).sum(-1)


def kl_students(student, teacher):
    t = 2.0
    p = F.softmax(teacher / t, dim=-1)
    return (
        (p * (F.log_softmax(teacher / t, dim=-1) - F.log_softmax(student / t, dim=-1))).sum(-1)
        * t
        * t
    )


def cosine_rows(a, b):
    return F.cosine_similarity(a, b, dim=-1)


def focal_loss(logits, targets):
    bce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p_t = torch.exp(-bce)
    return 0.25 * (1 - p_t) ** 2.0 * bce


def huber(pred, target):
    return F.smooth_l1_loss(pred, target, beta=0.5)


def mse_mean(pred, target):
    return ((pred - target) ** 2).mean()


def hinge(scores, labels):
    return torch.mean(torch.clamp(1 - scores * labels, min=0))


def triplet_rows(anchor, positive, negative):
    near = (anchor - positive).pow(2).sum(-1).sqrt()
    far = (anchor - negative).pow(2).sum(-1).sqrt()
    return F.relu(near - far + 1.0)


def top1_probability(logits):
    probabilities = logits.softmax(-1)
    return probabilities.max(-1).values, probabilities.argmax(-1)


def cumulative_softmax(x):
    return torch.cumsum(torch.softmax(x, dim=-1), dim=-1)


def decay_scan(x):
    return x.flip(-1).cumsum(-1).flip(-1)


def mean_pool(hidden, mask):
    # hidden: batch, seq, dim; mask: batch, seq
    m = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * m).sum(1) / m.sum(1).clamp(min=1e-9)


def softmax_over_channels(x):
    return torch.softmax(x, dim=1)


def row_minmax(x):
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    return (x - low) / (high - low + 1e-6)
