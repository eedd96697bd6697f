"""Decides between `triton_op`, which `torch.compile` traces, and the opaque `custom_op`.

It reads the text only. Host code that passed `host_code.py` is traceable except for the constructs
below. Both give the same results; a traced launch shares the memory plan of the compiled graph.
"""

from __future__ import annotations

import ast
from typing import Literal

from kmint_tui.save.host_code import HostCode
from referee.reading.names import dotted

Registration = Literal["triton_op", "custom_op"]

_OPAQUE_OPTIONS = frozenset(
    {
        "num_ctas",
        "maxnreg",
        "num_buffers_warp_spec",
        "launch_pdl",
        "launch_cooperative_grid",
        "enable_fp_fusion",
    }
)


def registration(code: HostCode) -> tuple[Registration, str]:
    """The form of registration, and the reason."""
    kernels = set(code.kernels.kernels)
    for name, function in code.scope.functions.items():
        if name in kernels:
            continue
        for node in ast.walk(function):
            reason = _obstacle(node, code, kernels)
            if reason:
                return "custom_op", f"{reason} cannot be traced"
    return "triton_op", "the host code only allocates, views and launches"


def _obstacle(node: ast.AST, code: HostCode, kernels: set[str]) -> str | None:
    match node:
        case ast.BinOp(op=ast.Div()):
            return "a division of sizes"
        case ast.BinOp(op=ast.LShift() | ast.RShift() | ast.BitAnd() | ast.BitOr() | ast.BitXor()):
            return "bit arithmetic on sizes"
        case ast.Call(func=ast.Name(id="float"), args=[value]) if not isinstance(
            value, ast.Constant
        ):
            return "a size made a float"
        case ast.Call(
            func=ast.Subscript(value=ast.Name(id=name)), args=arguments, keywords=keywords
        ) if name in kernels:
            return _launch_obstacle(arguments, keywords, code)
        case ast.Attribute() | ast.Name() if (dotted(node, code.scope.aliases) or "").startswith(
            "math."
        ):
            return "the math module on sizes"
    return None


def _launch_obstacle(
    arguments: list[ast.expr], keywords: list[ast.keyword], code: HostCode
) -> str | None:
    values = [*arguments, *(keyword.value for keyword in keywords)]
    if any(isinstance(value, (ast.Tuple, ast.List)) for value in values):
        return "a tuple among a kernel's arguments"
    if any((dotted(value, code.scope.aliases) or "").startswith("tl.") for value in values):
        return "a Triton dtype among a kernel's arguments"
    option = next((keyword.arg for keyword in keywords if keyword.arg in _OPAQUE_OPTIONS), None)
    return f"the launch option {option}" if option else None
