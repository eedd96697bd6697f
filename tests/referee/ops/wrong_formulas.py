"""Slightly wrong formulas of each operation, which a comparator must catch.

Each is a plausible bug: a missing epsilon, weight, bias, residual or mean; a neighbouring
activation; no max subtraction; swapped operands; a wrong rotation sign; a scan without carry. All
compute in fp32 and cast like `eager.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from referee.ops.catalogue import SOFTCAP, base_name
from referee.ops.eager import ACTS, EXPLICIT, GATES, eager
from referee.ops.spec import Op

Wrong = Callable[..., Tensor]
WrongFormulas = dict[str, Wrong]

# The activation most easily mistaken for each one.
NEIGHBOURS = {
    "gelu": "silu",
    "silu": "gelu",
    "relu2": "square",
    "tanh": "hardtanh",
    "sigmoid": "hardsigmoid",
    "relu": "leaky_relu",
    "square": "relu2",
    "abs": "relu",
    "softsign": "tanh",
    "hardsigmoid": "sigmoid",
    "hardswish": "silu",
    "leaky_relu": "relu",
    "relu6": "relu",
    "hardtanh": "relu6",
    "elu": "selu",
    "selu": "elu",
    "softplus": "relu",
    "mish": "silu",
    "gelu_erf": "gelu",
}
_BLOCK = 64


def _with(right: Wrong, position: int, change: Callable[[Tensor], Tensor]) -> Wrong:
    """The right formula with one operand changed."""
    return lambda *inputs: right(*(change(t) if i == position else t for i, t in enumerate(inputs)))


def _swapped(right: Wrong) -> Wrong:
    return lambda first, second: right(second, first)


def _exp_ratio(z: Tensor) -> Tensor:
    return torch.exp(z) / torch.exp(z).sum(-1, keepdim=True)


def _no_carry(x: Tensor) -> Tensor:
    pieces = [piece.cumsum(-1) for piece in torch.split(x.float(), _BLOCK, dim=-1)]
    return torch.cat(pieces, dim=-1).to(x.dtype)


def _unit_rows(x: Tensor, eps: float, mean: bool) -> Tensor:
    squares = x.float().square()
    total = squares.mean(-1, keepdim=True) if mean else squares.sum(-1, keepdim=True)
    return (x.float() * torch.rsqrt(total + eps)).to(x.dtype)


def _gather_next(x: Tensor, tgt: Tensor) -> Tensor:
    return F.cross_entropy(x, (tgt + 1) % x.shape[-1], reduction="none")


_BY_NAME: dict[str, WrongFormulas] = {
    "softmax": {
        "max not subtracted": lambda x: _exp_ratio(x.float()).to(x.dtype),
        "wrong axis": lambda x: torch.softmax(x.float(), 0).to(x.dtype),
        "exp2 for exp": lambda x: torch.softmax(x.float() * 0.6931472, -1).to(x.dtype),
    },
    "log_softmax": {
        "max not subtracted": lambda x: (
            x.float() - torch.log(torch.exp(x.float()).sum(-1, keepdim=True))
        ).to(x.dtype),
        "log forgotten": lambda x: torch.softmax(x, -1),
    },
    "softmax_scale": {
        "scale forgotten": lambda x, scale: torch.softmax(x.float(), -1).to(x.dtype),
        "scale inverted": lambda x, scale: torch.softmax(x.float() / scale.float(), -1).to(x.dtype),
    },
    "softcap_softmax": {
        "cap forgotten": lambda x: torch.softmax(x.float(), -1).to(x.dtype),
        "cap clamps": lambda x: torch.softmax(x.float().clamp(-SOFTCAP, SOFTCAP), -1).to(x.dtype),
    },
    "rmsnorm_gemma": {
        "weight without one": lambda x, w: F.rms_norm(
            x.float(), (x.shape[-1],), w.float(), 1e-6
        ).to(x.dtype),
        "missing eps": lambda x, w: (_unit_rows(x.float(), 0.0, True) * (1.0 + w.float())).to(
            x.dtype
        ),
    },
    "l2norm": {
        "missing eps": lambda x: _unit_rows(x, 0.0, False),
        "mean for sum": lambda x: _unit_rows(x, 1e-6, True),
    },
    "bias_gelu": {
        "missing bias": lambda x, bias: F.gelu(x.float(), approximate="tanh").to(x.dtype),
        "silu for gelu": lambda x, bias: F.silu(x.float() + bias.float()).to(x.dtype),
    },
    "dequant_int8": {
        "scale forgotten": lambda q, scale: q.to(scale.dtype),
        "unsigned bytes": lambda q, scale: (q.view(torch.uint8).float() * scale.float()).to(
            scale.dtype
        ),
    },
    "cross_entropy": {
        "normaliser forgotten": lambda x, tgt: -x.gather(-1, tgt[:, None]).squeeze(-1),
        "next class": _gather_next,
        "sign": lambda x, tgt: -F.cross_entropy(x, tgt, reduction="none"),
    },
    "cumsum": {
        "exclusive": lambda x: (torch.cumsum(x.float(), -1) - x.float()).to(x.dtype),
        "no carry between blocks": _no_carry,
        "from the right": lambda x: x.float().flip(-1).cumsum(-1).flip(-1).to(x.dtype),
    },
    "entropy": {
        "log base two": lambda x: (EXPLICIT["entropy"](x.float()) * 1.442695).to(x.dtype),
        "sign": lambda x: -EXPLICIT["entropy"](x),
    },
    "kl_div": {
        "swapped operands": _swapped(EXPLICIT["kl_div"]),
        "cross entropy": lambda x, y: (
            -(torch.softmax(x.float(), -1) * torch.log_softmax(y.float(), -1)).sum(-1).to(x.dtype)
        ),
    },
}


def _normed(op: Op) -> WrongFormulas:
    right, weight = eager(op), 2 if op.residual else 1

    def without_eps(*inputs: Tensor) -> Tensor:
        h = inputs[0].float() + (inputs[1].float() if op.residual else 0.0)
        h = h - h.mean(-1, keepdim=True) if op.norm == "layer" else h
        n = h * torch.rsqrt(h.square().mean(-1, keepdim=True)) * inputs[weight].float()
        n = n + inputs[weight + 1].float() if op.norm == "layer" else n
        for act in op.acts:
            n = ACTS[act](n)
        return n.to(inputs[0].dtype)

    slips: WrongFormulas = {
        "missing eps": without_eps,
        "missing weight": _with(right, weight, torch.ones_like),
    }
    if op.norm == "layer":
        rms = eager(replace(op, name="", norm="rms"))
        slips["missing bias"] = _with(right, weight + 1, torch.zeros_like)
        slips["mean not subtracted"] = lambda *inputs: rms(*inputs[:-1])
    if op.residual:
        slips["missing residual"] = _with(right, 1, torch.zeros_like)
    for position, act in enumerate(op.acts):
        other = (*op.acts[:position], NEIGHBOURS[act], *op.acts[position + 1 :])
        slips[f"{NEIGHBOURS[act]} for {act} ({position + 1})"] = eager(
            replace(op, name="", acts=other)
        )
    if op.acts:
        slips["missing activation"] = eager(replace(op, name="", acts=op.acts[:-1]))
    return slips


def _rotated(op: Op) -> WrongFormulas:
    right, names = eager(op), {"rope": 1, "rope_interleaved": 1, "norm_rope": 2, "add_norm_rope": 3}
    cos = names[op.kind]
    slips = {
        "rotation sign": _with(right, cos + 1, torch.neg),
        "no rotation": _with(right, cos + 1, torch.zeros_like),
        "half a table": lambda *inputs: right(
            *inputs[:cos], *(_first_half_twice(table) for table in inputs[cos:])
        ),
    }
    if op.kind != "rope" and op.kind != "rope_interleaved":
        slips["missing weight"] = _with(right, cos - 1, torch.ones_like)
    if op.kind == "add_norm_rope":
        slips["missing residual"] = _with(right, 1, torch.zeros_like)
    return slips


def _first_half_twice(table: Tensor) -> Tensor:
    half = table[..., : table.shape[-1] // 2]
    return torch.cat((half, half), dim=-1)


def _gated(op: Op) -> WrongFormulas:
    right, act = eager(op), GATES[base_name(op)]
    other = ACTS[NEIGHBOURS[act]]
    return {
        "swapped gate": _swapped(right),
        f"{NEIGHBOURS[act]} for {act}": lambda gate, up: (other(gate.float()) * up.float()).to(
            gate.dtype
        ),
        "missing gate activation": lambda gate, up: (gate.float() * up.float()).to(gate.dtype),
    }


def wrong_formulas(op: Op) -> WrongFormulas:
    """The wrong formulas of a catalogue or remix operation, by name; {} for a user's operation."""
    name = base_name(op)
    if name in _BY_NAME:
        return _BY_NAME[name]
    if op.kind == "gate_up":
        return _gated(op)
    if "rope" in op.kind:
        return _rotated(op)
    if op.norm is not None:
        return _normed(op)
    if op.kind == "unary" and name in ACTS:
        other = ACTS[NEIGHBOURS[name]]
        return {
            f"{NEIGHBOURS[name]} for {name}": lambda x: other(x.float()).to(x.dtype),
            "identity": lambda x: x.clone(),
        }
    return {}
