"""The prompt text of an operation for the smith: signature and description in both dialects.

"card" is the form of the public model cards: a typed signature and one line of description.
"trained" is the form that the public adapters were trained on: a `def` line with a comment, then
notes. It keeps two quirks of the training data. A chain's hint names only the text after the last
underscore (leaky_relu -> "relu"), and `_short` operations have a REGIME comment.
"""

from __future__ import annotations

from dataclasses import dataclass

from referee.ops.catalogue import base_name
from referee.ops.shipped import shipped
from referee.ops.signatures import KINDS, Parameter, signature
from referee.ops.spec import Op

_CHAIN_NORMS = {"rms": "RMSNorm", "layer": "LayerNorm"}


@dataclass(frozen=True)
class PromptText:
    """`signature` goes below the prompt's "Signature:"; `description` is the operation in words."""

    signature: str
    description: str


def _shape(parameter: Parameter, *, head: bool) -> str:
    symbols = ["D" if s == "N" and head else "D/2" if s == "H" else s for s in parameter.shape]
    return ", ".join(symbols)


def _described(parameter: Parameter, *, head: bool) -> str:
    return f"{parameter.name} ({_shape(parameter, head=head)})" + (
        "" if parameter.dtype == "x" else f" {parameter.dtype}"
    )


def _is_head(op: Op) -> bool:
    return "cos" in signature(op)


def card_text(op: Op) -> PromptText:
    """The card dialect: `run(x: Tensor[M, N]) -> Tensor[M, N]` and a one-line description."""
    function = shipped().get(op.name) if op.origin == "catalogue" else None
    if function is not None:
        return PromptText(function.signature, op.formula)
    if op.kind not in KINDS:
        return PromptText(
            f"run({', '.join(f'{name}: Tensor' for name in signature(op))}) -> Tensor", op.formula
        )
    kind, head = KINDS[op.kind], _is_head(op)
    arguments = ", ".join(f"{p.name}: Tensor[{_shape(p, head=head)}]" for p in kind.parameters)
    output = _shape(Parameter("out", kind.output), head=head)
    return PromptText(f"run({arguments}) -> Tensor[{output}]", f"{op.title}: {op.formula}")


def _is_chain(op: Op) -> bool:
    return op.norm is not None and bool(op.acts)


def trained_text(op: Op) -> PromptText:
    """The trained dialect: a `def run(...):` line with a comment, and the notes after the name."""
    line = f"def run({', '.join(signature(op))}):"
    name = base_name(op)
    if _is_chain(op) and op.norm is not None:
        kind = ("residual+" if op.residual else "") + _CHAIN_NORMS[op.norm]
        act = name.rsplit("_", 1)[-1]
        hint = f"{line}  # fused {name}: {kind} then {act} epilogue; accumulate the row statistics in fp32"
        notes = f"generative fusion chain (reduction->epilogue): {name}."
    elif op.kind in KINDS:
        head = _is_head(op)
        shapes = ", ".join(_described(p, head=head) for p in KINDS[op.kind].parameters)
        hint, notes = f"{line}  # {shapes}; {op.formula}", f"{op.title}."
    else:
        hint, notes = f"{line}  # {op.formula}", op.title
    if op.regime == "short":
        hint += "\n# REGIME: many short rows, 16384 rows x 2048 columns"
    return PromptText(hint, notes)
