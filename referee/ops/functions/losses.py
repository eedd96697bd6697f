"""Losses and probabilities of rows of logits, and the softmax with a mask."""

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORED = -100
SMOOTHING = 0.1
Z_WEIGHT = 1e-4
TEMPERATURE = 2.0


def softmax_masked(x: Tensor, mask: Tensor) -> Tensor:
    """Softmax of the elements that the mask keeps; the others are zero."""
    hidden = x.float().masked_fill(~mask, torch.finfo(torch.float32).min)
    return torch.softmax(hidden, dim=-1).to(x.dtype)


def softmax_causal(x: Tensor) -> Tensor:
    """Softmax of attention scores of which a query sees no later key."""
    keep = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).tril()
    hidden = x.float().masked_fill(~keep, float("-inf"))
    return torch.softmax(hidden, dim=-1).to(x.dtype)


def cross_entropy_ignore(x: Tensor, target: Tensor) -> Tensor:
    """Cross entropy of each row; a row of the target -100 has none."""
    return F.cross_entropy(x.float(), target, ignore_index=IGNORED, reduction="none")


def cross_entropy_smooth(x: Tensor, target: Tensor) -> Tensor:
    """Cross entropy of each row with label smoothing of 0.1; a row of the target -100 has none."""
    return F.cross_entropy(
        x.float(), target, ignore_index=IGNORED, reduction="none", label_smoothing=SMOOTHING
    )


def cross_entropy_z(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Cross entropy of each row plus 1e-4 * logsumexp^2, and the logsumexp."""
    logits = x.float()
    lse = torch.logsumexp(logits, dim=-1)
    picked = logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return lse - picked + Z_WEIGHT * lse.square(), lse


def logsumexp(x: Tensor) -> Tensor:
    """The logarithm of the sum of a row's exponentials."""
    return torch.logsumexp(x.float(), dim=-1)


def z_loss(x: Tensor) -> Tensor:
    """1e-4 * logsumexp^2 of each row."""
    return Z_WEIGHT * torch.logsumexp(x.float(), dim=-1).square()


def token_logprob(x: Tensor, token: Tensor) -> Tensor:
    """The log-probability of one token a row."""
    logp = torch.log_softmax(x.float(), dim=-1)
    return logp.gather(-1, token.unsqueeze(-1)).squeeze(-1)


def kl_batchmean(student: Tensor, teacher: Tensor) -> Tensor:
    """KL divergence of two models' logits at temperature 2, the mean over rows, times its square."""
    logp = torch.log_softmax(student.float() / TEMPERATURE, dim=-1)
    q = torch.softmax(teacher.float() / TEMPERATURE, dim=-1)
    return F.kl_div(logp, q, reduction="batchmean") * TEMPERATURE**2


def moe_gate(x: Tensor) -> tuple[Tensor, Tensor]:
    """The two most probable experts of each token, and their probabilities made to sum to one."""
    p = torch.softmax(x.float(), dim=-1)
    weight, expert = torch.topk(p, 2, dim=-1)
    return weight / weight.sum(-1, keepdim=True), expert
