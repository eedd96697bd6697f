"""The part around the judged one when the reference was the user's own: no op is registered, because its shapes are not known.

`torch.compile` traces the plain function; there is no CPU implementation, the user has the reference.
"""

from __future__ import annotations

from referee.ops import Op, signature


def user_wrapper(op: Op, name: str, entry: str) -> str:
    """Everything after the judged part."""
    arguments = signature(op)
    typed = ", ".join(f"{argument}: Tensor" for argument in arguments)
    return f'''def {name}({typed}) -> Tensor | tuple[Tensor, ...]:
    """Contiguous CUDA tensors as in the cells of the receipt. Raises TypeError or ValueError naming the argument that is wrong."""
    for name, tensor in ({", ".join(f'("{argument}", {argument})' for argument in arguments)},):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{{name}} must be a torch.Tensor, not {{type(tensor).__name__}}")
        if tensor.device.type != "cuda" or tensor.device != {arguments[0]}.device:
            raise ValueError(f"{{name}} must be on the same GPU as {arguments[0]}, not on {{tensor.device}}")
        if not tensor.is_contiguous():
            raise ValueError(f"{{name}} must be contiguous; pass {{name}}.contiguous()")
        if tensor.requires_grad and torch.is_grad_enabled():
            raise NotImplementedError("{name} has no backward: call it under torch.no_grad()")
    with torch.cuda.device({arguments[0]}.device):
        return {entry}({", ".join(arguments)})
'''
