"""The comparator: what good kernels of other styles may do, what wrong ones may not, and what it
says of them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from referee.answers.compare import compare
from referee.ops.task import load
from referee.ops.values import draw
from referee.verdict import CellResult

Candidate = Callable[..., Tensor]
SEED = 20240607
MOST_ROWS = 70


def tree_sum(values: Tensor) -> Tensor:
    """A pairwise tree in the values' own dtype, as a block reduction on a GPU."""
    width = 1 << (values.shape[-1] - 1).bit_length()
    values = torch.nn.functional.pad(values, (0, width - values.shape[-1]))
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        values = values[..., :half] + values[..., half:]
    return values


def sequential_sum(values: Tensor) -> Tensor:
    total = torch.zeros_like(values[..., :1])
    for start in range(0, values.shape[-1], 16):
        total = total + values[..., start : start + 16].sum(-1, keepdim=True)
    return total


def judge(op: str, candidate: Candidate, *, profile: str = "cpu") -> list[CellResult]:
    task = load(op, "gpu" if profile == "gpu" else "cpu")
    results = []
    for cell in task.required:
        if cell.inputs[0].shape[0] <= MOST_ROWS:
            inputs = draw(cell, SEED)
            results.append(compare(task, cell, inputs, (candidate(*inputs),)))
    return results


def rms(x: Tensor, w: Tensor, total: Callable[[Tensor], Tensor], eps: float = 1e-6) -> Tensor:
    v = x.float()
    return (v * torch.rsqrt(total(v * v) / v.shape[-1] + eps) * w.float()).to(x.dtype)


def layernorm(x: Tensor, w: Tensor, b: Tensor, *, single_pass: bool) -> Tensor:
    v, n = x.float(), x.shape[-1]
    mean = tree_sum(v) / n
    variance = tree_sum(v * v) / n - mean * mean if single_pass else tree_sum((v - mean) ** 2) / n
    return ((v - mean) * torch.rsqrt(variance + 1e-5) * w.float() + b.float()).to(x.dtype)


def softmax(x: Tensor, *, subtract: bool = True) -> Tensor:
    v = x.float()
    e = torch.exp2((v - v.amax(-1, keepdim=True) if subtract else v) * 1.4426950408889634)
    return (e / tree_sum(e)).to(x.dtype)


def softmax_of_products(x: Tensor) -> Tensor:
    """Multiplied before the largest is taken away: of a row of float32's least number nothing is
    left.
    """
    v = x.float() * 1.4426950408889634
    e = torch.exp2(v - v.amax(-1, keepdim=True))
    return (e / tree_sum(e)).to(x.dtype)


def online_softmax(x: Tensor) -> Tensor:
    m = torch.full_like(x[..., :1], -torch.inf, dtype=torch.float32)
    s = torch.zeros_like(m)
    for start in range(0, x.shape[-1], 64):
        part = x[..., start : start + 64].float()
        top = torch.maximum(m, part.amax(-1, keepdim=True))
        s = s * torch.exp(m - top) + torch.exp(part - top).sum(-1, keepdim=True)
        m = top
    return (torch.exp(x.float() - m) / s).to(x.dtype)


def mish_rewritten(x: Tensor) -> Tensor:
    n = torch.exp(torch.clamp(x, max=20.0))
    n = n * (n + 2)
    return torch.where(x > 20, x, x * n / (n + 2))


def unshifted_cross_entropy(x: Tensor, tgt: Tensor) -> Tensor:
    v = x.float()
    top = v.amax(-1, keepdim=True)
    lse = top + torch.log(torch.exp(v - top).sum(-1, keepdim=True))
    return (lse - v.gather(-1, tgt[:, None])).squeeze(-1).to(x.dtype)


def kl_by_logs(x: Tensor, y: Tensor, *, swapped: bool = False) -> Tensor:
    """Sum of p (log p - log q) with shifted logits and tree sums, as a kernel computes it."""
    a, b = ((y if swapped else x).float(), (x if swapped else y).float())
    a, b = a - a.amax(-1, keepdim=True), b - b.amax(-1, keepdim=True)
    p, q = tree_sum(torch.exp(a)), tree_sum(torch.exp(b))
    return (
        tree_sum(torch.exp(a) / p * ((a - torch.log(p)) - (b - torch.log(q))))
        .squeeze(-1)
        .to(x.dtype)
    )


def log_sum_exp(x: Tensor) -> Tensor:
    top = x.float().amax(-1, keepdim=True)
    return top + torch.log(tree_sum(torch.exp(x.float() - top)))


def kl_by_log_sum_exps(x: Tensor, y: Tensor) -> Tensor:
    p, q = x.float() - log_sum_exp(x), y.float() - log_sum_exp(y)
    return tree_sum(torch.exp(p) * (p - q)).squeeze(-1).to(x.dtype)


def softplus_by_log(y: Tensor) -> Tensor:
    return torch.where(y > 20, y, torch.log(1 + torch.exp(y)))


def normed(x: Tensor, w: Tensor) -> Tensor:
    return rms(x.float(), w.float(), tree_sum)


def low_precision_rms(x: Tensor, w: Tensor) -> Tensor:
    total = tree_sum(x * x).float()
    return (x.float() * torch.rsqrt(total / x.shape[-1] + 1e-6) * w.float()).to(x.dtype)


GOOD: dict[str, tuple[str, Candidate]] = {
    "tree sum": ("rmsnorm", lambda x, w: rms(x, w, tree_sum)),
    "sequential sum": ("rmsnorm", lambda x, w: rms(x, w, sequential_sum)),
    "sqrt and divide": (
        "rmsnorm",
        lambda x, w: (
            x.float() / torch.sqrt(x.float().square().mean(-1, keepdim=True) + 1e-6) * w
        ).to(x.dtype),
    ),
    "one rounding before the weight": (
        "rmsnorm",
        lambda x, w: rms(x, torch.ones_like(w), tree_sum) * w,
    ),
    "exp2 with a scale": ("softmax", softmax),
    "online": ("softmax", online_softmax),
    "two-pass variance": ("layernorm", lambda x, w, b: layernorm(x, w, b, single_pass=False)),
    "tanh through sigmoid": (
        "rmsnorm_tanh",
        lambda x, w: (2 * torch.sigmoid(2 * normed(x, w)) - 1).to(x.dtype),
    ),
    "mish with one exponential": (
        "rmsnorm_mish",
        lambda x, w: mish_rewritten(normed(x, w)).to(x.dtype),
    ),
    "elu as exp minus one": (
        "rmsnorm_elu",
        lambda x, w: (lambda y: torch.where(y > 0, y, torch.exp(y) - 1))(normed(x, w)).to(x.dtype),
    ),
    "softplus as log": ("rmsnorm_softplus", lambda x, w: softplus_by_log(normed(x, w)).to(x.dtype)),
    "softcap through sigmoid": (
        "softcap_softmax",
        lambda x: softmax(30 * (2 * torch.sigmoid(x.float() / 15) - 1)).to(x.dtype),
    ),
    "silu by division": (
        "rmsnorm_silu",
        lambda x, w: (normed(x, w) / (1 + torch.exp(-normed(x, w)))).to(x.dtype),
    ),
    "softmax by one log-sum-exp": (
        "softmax",
        lambda x: torch.exp(x.float() - log_sum_exp(x)).to(x.dtype),
    ),
    "scaled softmax by one log-sum-exp": (
        "softmax_scale",
        lambda x, scale: torch.exp(
            x.float() * scale.float() - log_sum_exp(x.float() * scale.float())
        ).to(x.dtype),
    ),
    "divergence by log-sum-exps": ("kl_div", kl_by_log_sum_exps),
    "log-sum-exp minus target": ("cross_entropy", unshifted_cross_entropy),
    "scan in fp32": ("cumsum", lambda x: torch.cumsum(x.float(), -1).to(x.dtype)),
}

WRONG: dict[str, tuple[str, Candidate]] = {
    "missing eps": ("rmsnorm", lambda x, w: rms(x, w, tree_sum, eps=0.0)),
    "layernorm's eps": ("rmsnorm", lambda x, w: rms(x, w, tree_sum, eps=1e-5)),
    "sums in the input's dtype": ("rmsnorm", low_precision_rms),
    "sum for mean": ("rmsnorm", lambda x, w: rms(x, w, lambda v: tree_sum(v) * v.shape[-1])),
    "divided by the block": (
        "rmsnorm",
        lambda x, w: rms(x, w, lambda v: tree_sum(v) * (1000 / 1024)),
    ),
    "masks that overflow": ("softmax", softmax_of_products),
    "no max": ("softmax", lambda x: softmax(x, subtract=False)),
    "wrong axis": ("softmax", lambda x: torch.softmax(x.float(), 0).to(x.dtype)),
    "single-pass variance": ("layernorm", lambda x, w, b: layernorm(x, w, b, single_pass=True)),
    "erf for tanh": ("gelu", lambda x: torch.nn.functional.gelu(x.float()).to(x.dtype)),
    "tanh for erf": (
        "rmsnorm_gelu_erf",
        lambda x, w: torch.nn.functional.gelu(normed(x, w), approximate="tanh").to(x.dtype),
    ),
    "computed in bfloat16": (
        "silu",
        lambda x: torch.nn.functional.silu(x.bfloat16().float()).to(x.dtype),
    ),
    "zeros": ("softmax", torch.zeros_like),
    "exponential a thousandth of a percent off": (
        "softmax",
        lambda x: (softmax(x).float() * 1.00001).to(x.dtype),
    ),
    "divergence a hundredth of a percent off": (
        "kl_div",
        lambda x, y: (kl_by_logs(x, y).float() * 1.0001).to(x.dtype),
    ),
    "uniform": ("softmax", lambda x: torch.full_like(x, 1 / x.shape[-1])),
    "divergence the wrong way round": ("kl_div", lambda x, y: kl_by_logs(x, y, swapped=True)),
    "no divergence": ("kl_div", lambda x, y: torch.zeros_like(x[:, 0])),
    "last column missing": (
        "silu",
        lambda x: torch.cat(
            [torch.nn.functional.silu(x.float())[:, :-1].to(x.dtype), x[:, -1:] * 0], 1
        ),
    ),
}


@pytest.mark.parametrize(("op", "candidate"), GOOD.values(), ids=GOOD)
@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_other_styles_of_a_right_kernel_pass(op: str, candidate: Candidate, profile: str) -> None:
    results = judge(op, candidate, profile=profile)
    assert [(r.name, r.detail) for r in results if r.status != "pass"] == []


def test_a_divergence_smaller_than_its_rounding_passes() -> None:
    """At tiny logits the divergence is the 1e-6 difference of log-probabilities near five, which
    fp32 cannot hold exactly.
    """
    task = load("kl_div", "gpu")
    (cell,) = [cell for cell in task.cells if cell.name.startswith("f32-257x128")]
    for seed in range(8):
        inputs = draw(cell, seed)
        result = compare(task, cell, inputs, (kl_by_logs(*inputs),))
        assert result.status == "pass", result.detail


@pytest.mark.parametrize(("op", "candidate"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_slips_fail_in_at_least_one_cell(op: str, candidate: Candidate, profile: str) -> None:
    results = judge(op, candidate, profile=profile)
    failures = [result for result in results if result.status == "fail"]
    assert failures and all(result.detail and "\n" not in result.detail for result in failures)


def test_tanh_and_erf_gelu_differ_in_every_ordinary_dtype() -> None:
    task = load("gelu", "gpu")
    erf = torch.nn.functional.gelu
    caught = set()
    for cell in task.required:
        if cell.inputs[0].shape[0] <= MOST_ROWS:
            inputs = draw(cell, SEED)
            if (
                compare(task, cell, inputs, (erf(inputs[0].float()).to(inputs[0].dtype),)).status
                == "fail"
            ):
                caught.add(cell.inputs[0].dtype)
    assert caught == {"float32", "float16", "bfloat16"}
