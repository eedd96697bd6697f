"""Computes a program with PyTorch, line by line: an oracle for programs without a function.

Numbers are computed in the given float dtype. Addresses are evaluated as Python on index tensors.
kmint evaluates only texts that it wrote into a program itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from kmint_tui.graph.program import Line, Program, Stage
from kmint_tui.graph.vocabulary import INDEX, LOAD, REVERSED, SCANS, WHERE

_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "log": torch.log,
    "log2": torch.log2,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "recip": torch.reciprocal,
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softplus": lambda x: x.clamp(min=0) + torch.log1p(torch.exp(-x.abs())),
    "tanh_softplus": lambda x: torch.tanh(x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))),
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "sign": torch.sign,
    "relu": lambda x: x.clamp(min=0),
    "not": lambda x: x == 0,
}
_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.true_divide,
    "floor_div": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "pow": torch.pow,
    "mod": torch.remainder,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "xor": torch.logical_xor,
}


def _backwards(scan: str, value: Tensor) -> Tensor:
    return _ROWWISE[scan](value.flip(-1)).flip(-1)


_ROWWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(-1, keepdim=True),
    "prod": lambda x: x.prod(-1, keepdim=True),
    "max": lambda x: x.amax(-1, keepdim=True),
    "min": lambda x: x.amin(-1, keepdim=True),
    "argmax": lambda x: x.argmax(-1, keepdim=True),
    "argmin": lambda x: x.argmin(-1, keepdim=True),
    "cumsum": lambda x: x.cumsum(-1),
    "cumprod": lambda x: x.cumprod(-1),
    **{f"{name}{REVERSED}": partial(_backwards, name) for name in SCANS},
}


def evaluate(
    program: Program, arguments: Mapping[str, Any], dtype: torch.dtype = torch.float64
) -> tuple[Tensor, ...]:
    """The results on tensors and numbers by argument name.

    Floats come in `dtype`; integers and truth values come as they are.
    """
    scope: dict[str, Any] = {**arguments, "torch": torch, "math": math}
    for one in (*program.outputs, *program.temporaries):
        shape = tuple(int(eval(text, {}, scope)) for text in one.shape)
        wanted: torch.dtype = eval(one.dtype, {}, scope)
        made = torch.zeros(shape, dtype=dtype if wanted.is_floating_point else wanted)
        scope[one.name] = made
    for stage in program.stages:
        _run(stage, scope, dtype)
    return tuple(scope[name] for name in program.results)


def _run(stage: Stage, scope: dict[str, Any], dtype: torch.dtype) -> None:
    """One stage: the tensors that it writes are changed in `scope`."""
    sizes = {name: int(eval(text, {}, scope)) for name, text in stage.sizes}
    known = {name: torch.tensor(size) for name, size in sizes.items()}
    for number, constant in enumerate(stage.constants):
        kind = dtype if isinstance(constant, float) else None
        known[f"k{number}"] = torch.tensor(constant, dtype=kind)
    for number, text in enumerate(stage.numbers):
        known[f"s{number}"] = torch.tensor(float(eval(text, {}, scope)), dtype=dtype)
    known["r"] = torch.arange(sizes.get("M", 1))[:, None]
    known["c"] = torch.arange(sizes["N"])[None, :]
    tensors = {f"a{number}": scope[name] for number, name in enumerate(stage.reads)}
    for line in stage.lines:
        known[line.name] = _value(line, known, tensors, dtype)
    for number, name in enumerate(stage.writes):
        flat = scope[name].reshape(-1)
        for store in stage.stores:
            if store.tensor == f"b{number}":
                value = known[store.value]
                # Both over all the rows and columns that either runs over.
                place = _at(store.address, known) + torch.zeros_like(value, dtype=torch.int64)
                flat[place.reshape(-1)] = value.expand(place.shape).reshape(-1).to(flat.dtype)
        scope[name] = flat.reshape(scope[name].shape)


def _at(address: str, known: Mapping[str, Tensor]) -> Tensor:
    """The places of an address, for all rows and columns that it depends on."""
    place = eval(address, {}, dict(known))
    return place if isinstance(place, Tensor) else torch.tensor(place)


def _value(
    line: Line, known: Mapping[str, Tensor], tensors: Mapping[str, Tensor], dtype: torch.dtype
) -> Tensor:
    if line.op == LOAD:
        found = tensors[line.arguments[0]].reshape(-1)[_at(line.arguments[1], known)]
        return found.to(dtype) if line.kind == "f" else found
    if line.op == INDEX:
        return _at(line.arguments[0], known)
    given = [known[name] for name in line.arguments]
    if line.op in _UNARY:
        return _UNARY[line.op](given[0])
    if line.op in _BINARY:
        made = _BINARY[line.op](given[0], given[1])
        return made.to(dtype) if line.kind == "f" else made
    if line.op == WHERE:
        return torch.where(given[0] != 0, given[1], given[2])
    if line.op == "to_float":
        return given[0].to(dtype)
    if line.op == "to_int":
        return given[0].to(torch.int64)
    return _ROWWISE[line.op](given[0].expand(known["r"].shape[0], known["c"].shape[1]))
