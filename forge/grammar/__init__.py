"""The template grammar: correct Triton kernels for every op of the catalogue, in several structures each.

`designs` draws distinct programs for an op, `write` turns one into source under a naming. An op outside the grammar
raises LookupError.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

from forge.grammar.acts import ACTS
from forge.grammar.canonical import canonical_hash
from forge.grammar.design import Design, Naming, draw_design, draw_naming
from forge.grammar.norms import NormSpec, norm_kernel
from forge.grammar.pointwise import PointwiseSpec, pointwise_kernel
from forge.grammar.ropes import ARGUMENTS as ROPES
from forge.grammar.ropes import cumsum_kernel, rope_kernel
from forge.grammar.softmaxes import ROW_LOSSES, SOFTMAXES, softmax_kernel
from referee.ops import Op

GATES = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu", "glu": "sigmoid"}
BARE = Naming({})
_TRIES = 6

_Structures = dict[str, int]
_ROW: _Structures = {"row": 7, "tile": 2, "loop": 2}
_ROW_SHORT: _Structures = {"row": 3, "tile": 7}
_WIDE: _Structures = {"split": 5, "loop": 5}
_FLAT: _Structures = {"flat": 6, "row": 2, "grid2": 2}
_BIAS: _Structures = {"flat": 3, "row": 4, "grid2": 4, "tile": 1}
_DEQUANT: _Structures = {"row": 5, "grid2": 3, "tile": 2}
_ROPE: _Structures = {"tile": 6, "row": 3, "gather": 1}
_REDUCE_ONLY: _Structures = {"row": 7, "tile": 2}


def _base_name(op: Op) -> str:
    return op.name.removesuffix("_short") if op.regime == "short" else op.name


def _norm_spec(op: Op) -> NormSpec | None:
    eps = op.eps or 0.0
    if op.name == "rmsnorm_gemma":
        return NormSpec("gemma", False, (), eps)
    if op.name == "l2norm":
        return NormSpec("l2", False, (), eps)
    return NormSpec(op.norm, op.residual, op.acts, eps) if op.norm else None


def pointwise_spec(op: Op) -> PointwiseSpec | None:
    """The elementwise function of an op, or None. Synthetic ops carry their activation in `acts`."""
    name = _base_name(op)
    if op.kind == "gate_up":
        return PointwiseSpec("gate_up", op.acts or (GATES[name],))
    if op.kind == "bias":
        return PointwiseSpec("bias", op.acts or (name.removeprefix("bias_"),))
    if op.kind == "dequant":
        return PointwiseSpec("dequant", ())
    if op.kind == "unary" and (op.acts or name in ACTS):
        return PointwiseSpec("unary", op.acts or (name,))
    return None


def recipe(op: Op) -> tuple[Callable[[Design], str], _Structures]:
    """The template of an op and the weights of its structures. Raises LookupError."""
    name = _base_name(op)
    norm, pointwise = _norm_spec(op), pointwise_spec(op)
    short = op.regime == "short"
    if norm is not None:
        return (lambda design: norm_kernel(norm, design)), _WIDE if op.regime == "wide" else _ROW_SHORT if short else _ROW
    if pointwise is not None:
        weights = {"bias": _BIAS, "dequant": _DEQUANT}.get(pointwise.kind, _FLAT)
        return (lambda design: pointwise_kernel(pointwise, design)), weights
    if name in SOFTMAXES or name in ROW_LOSSES:
        weights = _ROW_SHORT if short else _REDUCE_ONLY if name == "kl_div" else _ROW
        return (lambda design: softmax_kernel(name, design)), weights
    if name in ROPES:
        return (lambda design: rope_kernel(name, design)), _ROPE
    if name == "cumsum":
        return cumsum_kernel, _ROW
    raise LookupError(f"the grammar has no template for {op.name}")


@cache
def designs(op: Op, count: int, seed: int) -> tuple[Design, ...]:
    """About `count` designs of an op whose programs differ: each structure gets its share, and one at least."""
    template, weights = recipe(op)
    rng = random.Random(f"{seed}:design:{op.name}")
    naming = fixed_naming(op)
    found: dict[str, Design] = {}
    for structure, weight in weights.items():
        wanted = len(found) + max(1, round(count * weight / sum(weights.values())))
        for _ in range(count * _TRIES):
            design = draw_design(rng, structure)
            found.setdefault(canonical_hash(naming.fill(template(design))), design)
            if len(found) == wanted:
                break
    return tuple(found.values())


def fixed_naming(op: Op) -> Naming:
    """One naming a design is validated under."""
    return _complete(draw_naming(random.Random(f"fixed:{op.name}"), op.name))


def write(op: Op, design: Design, rng: random.Random) -> str:
    """Source of one kernel: bare, no imports, ends in a newline."""
    return _complete(draw_naming(rng, op.name)).fill(recipe(op)[0](design))


def write_fixed(op: Op, design: Design) -> str:
    """Source of a design under its fixed naming."""
    return fixed_naming(op).fill(recipe(op)[0](design))


def _complete(naming: Naming) -> Naming:
    return Naming(naming.names | {"kernel_sum": "_sum_squares_kernel" if naming.names["kernel"].startswith("_") else "sum_squares_kernel"})


__all__ = ["Design", "canonical_hash", "designs", "fixed_naming", "pointwise_spec", "recipe", "write", "write_fixed"]
