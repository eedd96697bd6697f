"""The registered operator of a saved file: how torch calls the kernel, its gradient and its vmap.

`registration` decides between `triton_op`, which `torch.compile` traces, and the opaque `custom_op`.
It reads the text only. Host code that passed `host_code.py` is traceable except for the constructs
below. Both give the same results; a traced launch shares the memory plan of the compiled graph.
"""

from __future__ import annotations

import ast
from typing import Literal

from kmint_tui.save.host_code import HostCode
from kmint_tui.save.judged_part import ENTRY_NAME
from referee.ops import Op
from referee.ops.signatures import KINDS, Parameter
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


_VMAP = '''def _vmap(info, in_dims, *inputs):
    """One call for each sample."""
    pairs = list(zip(inputs, in_dims, strict=True))
    found = [
        _op(*(one if dim is None else one.select(dim, at).contiguous() for one, dim in pairs))
        for at in range(info.batch_size)
    ]
    return torch.stack(found), 0


_op.register_vmap(_vmap)
'''
_BACKWARD = '''def _keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _backward(ctx, gradient):
    """Through reference(), which is computed again: no backward was judged."""
    needed, twice = ctx.needs_input_grad, torch.is_grad_enabled()
    with torch.enable_grad():
        pairs = list(zip(ctx.saved_tensors, needed, strict=True))
        # A gradient that is differentiated again must stay a function of the inputs.
        inputs = [one if twice else one.detach().requires_grad_(need) for one, need in pairs]
        leaves = [one for one, need in zip(inputs, needed, strict=True) if need]
        grads = torch.autograd.grad(reference(*inputs), leaves, gradient, create_graph=twice)
        found = iter(grads)
    return tuple(next(found) if need else None for need in needed)


_op.register_autograd(_backward, setup_context=_keep)
'''


def parameters_of(op: Op) -> tuple[Parameter, ...]:
    """The tensors that a kernel of the operation takes."""
    return KINDS[op.kind].parameters


def typed_names(op: Op) -> str:
    """Their names with a type, as in a signature."""
    return ", ".join(f"{parameter.name}: Tensor" for parameter in parameters_of(op))


def names_of(op: Op) -> str:
    """Their names, as in a call."""
    return ", ".join(parameter.name for parameter in parameters_of(op))


def dtype_of(op: Op) -> str:
    """The first tensor of the dtype that the operation is judged at."""
    return next(one.name for one in parameters_of(op) if one.dtype == "x")


def flat_inputs(op: Op, rows: str) -> str:
    """The tensors of a call with their leading dimensions as `rows`, an expression."""
    found = []
    for one in parameters_of(op):
        columns = f", {one.name}.shape[-1]" if len(one.shape) == 2 else ""
        flat = f"{one.name}.reshape({rows}{columns})"
        found.append(flat if one.shape[0] == "M" else one.name)
    return ", ".join(found)


def output_shape(op: Op) -> str:
    """The shape of the answer, from the first tensor's."""
    shape = f"{parameters_of(op)[0].name}.shape"
    return shape if KINDS[op.kind].output == ("M", "N") else f"{shape}[:-1]"


def registered(
    op: Op, name: str, namespace: str, how: Registration, *, chooses: bool = False
) -> str:
    """The code that registers the operator `namespace::name` and its further forms.

    With `chooses` every call takes its kernel from the table of the file.
    """
    lead = parameters_of(op)[0].name
    shape = f"{lead}.shape" if KINDS[op.kind].output == ("M", "N") else f"{lead}.shape[:1]"
    empty = f"torch.empty({shape}, dtype={dtype_of(op)}.dtype, device={lead}.device)"
    cpu = [
        f'    if {lead}.device.type == "cpu":',
        "        # torch.compile looks into this function also when the tensors are on the CPU.",
        f"        return reference({names_of(op)})",
    ]
    decorator = "torch.library.custom_op" if how == "custom_op" else how
    lines = [f'@{decorator}("{namespace}::{name}", mutates_args=())']
    lines += [
        f"def _op({typed_names(op)}) -> Tensor:",
        *(cpu if how == "triton_op" else []),
        f"    if {lead}.shape[0] == 0:",
        f"        return {empty}",
        *_launch(op, how, chooses=chooses),
        "    return found",
        "",
        "",
    ]
    if how == "custom_op":
        lines += [
            "@_op.register_fake",
            f"def _fake({typed_names(op)}) -> Tensor:",
            f"    return {empty}",
            "",
            "",
        ]
    lines += [
        '@_op.register_kernel("cpu")',
        f"def _cpu({typed_names(op)}) -> Tensor:",
        f"    return reference({names_of(op)})",
        "",
        "",
    ]
    lines += [_BACKWARD, "", _VMAP]
    return "\n".join(lines)


def _launch(op: Op, how: Registration, *, chooses: bool) -> list[str]:
    """The lines that launch the kernel; those of a `triton_op` are announced to torch.compile."""
    lead = parameters_of(op)[0].name
    entry = "kernel" if chooses else ENTRY_NAME
    lines = [f"    with torch.cuda.device({lead}.device):"]
    if chooses:
        sizes = f"{lead}.shape[0], {lead}.shape[-1], {dtype_of(op)}.dtype"
        lines.append(f"        kernel = _kernel_for({sizes})")
    lines.append(f"        found: Tensor = {entry}({names_of(op)})")
    if how == "custom_op":
        return lines
    return [
        "    _thread.in_operator = True",
        "    try:",
        *(f"    {line}" for line in lines),
        "    finally:",
        "        _thread.in_operator = False",
    ]
