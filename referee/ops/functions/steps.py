"""A step of an optimizer, on one tensor and its moments."""

from torch import Tensor

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


def adamw_step(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    lr: float = 1e-3,
    weight_decay: float = 0.01,
    correction1: float = 0.5,
    correction2: float = 0.3,
) -> tuple[Tensor, Tensor, Tensor]:
    """AdamW: the new parameter and moments. The corrections are 1 - beta^step."""
    g = grad.float()
    m = exp_avg.float() * BETA1 + g * (1 - BETA1)
    v = exp_avg_sq.float() * BETA2 + g * g * (1 - BETA2)
    step = (m / correction1) / ((v / correction2).sqrt() + EPS)
    old = param.float()
    new = old - old * lr * weight_decay - step * lr
    return new.to(param.dtype), m.to(exp_avg.dtype), v.to(exp_avg_sq.dtype)
