"""The registered operator of a saved file: how torch calls the kernel, its gradient and its vmap."""

from __future__ import annotations

from kmint_tui.save.judged_part import ENTRY_NAME
from kmint_tui.save.traceable import Registration
from referee.ops import Op
from referee.ops.signatures import KINDS, Parameter

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


def registered(
    op: Op, name: str, namespace: str, how: Registration, *, chooses: bool = False
) -> str:
    """The code that registers the operator `namespace::name` and its further forms.

    With `chooses` every call takes its kernel from the table of the file.
    """
    lead = parameters_of(op)[0].name
    dtype_of = next(parameter.name for parameter in parameters_of(op) if parameter.dtype == "x")
    shape = f"{lead}.shape" if KINDS[op.kind].output == ("M", "N") else f"{lead}.shape[:1]"
    empty = f"torch.empty({shape}, dtype={dtype_of}.dtype, device={lead}.device)"
    body = [
        f"    if {lead}.shape[0] == 0:",
        f"        return {empty}",
        f"    with torch.cuda.device({lead}.device):",
    ]
    if chooses:
        sizes = f"{lead}.shape[0], {lead}.shape[-1], {dtype_of}.dtype"
        body.append(f"        kernel = _kernel_for({sizes})")
    entry = "kernel" if chooses else ENTRY_NAME
    body.append(f"        found: Tensor = {entry}({names_of(op)})")
    body.append("    return found")
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
        *body,
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
