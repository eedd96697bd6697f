"""The part around the judged one when the reference was the user's own: nothing is let through that was not judged.

No op is registered: the reference is not saved with the kernel, so there is nothing that could run on the CPU. `torch.compile`
traces the plain function. Its arguments bear the reference's names, which may be any, so its body mentions nothing but them and
one function, which gets them as a tuple.
"""

from __future__ import annotations

import json

from kmint_tui.save.host_code import NotSaveable
from kmint_tui.save.own_reference import Argument, Judged

CHECKED = "_checked_run"

_CHECKS = '''def {checked}(tensors: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    for name, tensor in zip(ARGUMENTS, tensors):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{{name}} must be a torch.Tensor, not {{type(tensor).__name__}}")
    if not any(_fits(tensors, signature) for signature in JUDGED):
        raise _not_judged(tensors)
    for name, tensor in zip(ARGUMENTS, tensors):
        if tensor.device.type != "cuda" or tensor.device != tensors[0].device:
            raise ValueError(f"{{name}} must be on the same GPU as {{ARGUMENTS[0]}}, not on {{tensor.device}}")
        if not tensor.is_contiguous():
            raise ValueError(f"{{name}} must be contiguous; pass {{name}}.contiguous()")
        if tensor.requires_grad and torch.is_grad_enabled():
            raise NotImplementedError("{public} has no backward: call it under torch.no_grad()")
    with torch.cuda.device(tensors[0].device):
        return {entry}(*tensors)


def _fits(tensors: tuple[Tensor, ...], signature: tuple[tuple[tuple[int, ...], torch.dtype], ...]) -> bool:
    return all(tensor.dtype == dtype and tensor.shape == shape for tensor, (shape, dtype) in zip(tensors, signature))


def _not_judged(tensors: tuple[Tensor, ...]) -> TypeError | ValueError:
    """What is wrong with arguments whose shapes and dtypes are not in JUDGED."""
    for position, (name, tensor) in enumerate(zip(ARGUMENTS, tensors)):
        dtypes = sorted({{str(signature[position][1]) for signature in JUDGED}})
        if str(tensor.dtype) not in dtypes:
            return TypeError(f"{{name}} is {{tensor.dtype}}; the kernel was judged with {{' or '.join(dtypes)}}")
        shapes = sorted({{signature[position][0] for signature in JUDGED}})
        if tuple(tensor.shape) not in shapes:
            return ValueError(f"{{name}} has shape {{tuple(tensor.shape)}}; the kernel was judged with {{' or '.join(map(str, shapes))}}")
    found = ", ".join(f"{{name}} {{tuple(tensor.shape)}} {{tensor.dtype}}" for name, tensor in zip(ARGUMENTS, tensors))
    return ValueError(f"the kernel was not judged with these together: {{found}}; see JUDGED")
'''


def judged_constants(judged: Judged) -> str:
    """The limits that the checks hold callers to."""
    lines = [f"    {_tuple([_argument(one) for one in signature])}," for signature in judged.signatures]
    return "\n".join(
        [
            f"ARGUMENTS = {_tuple([json.dumps(name) for name in judged.names])}",
            "# Shape and dtype of every argument, once for each combination that the referee judged; nothing else is let through.",
            "JUDGED = (",
            *lines,
            ")",
            "",
        ]
    )


def user_wrapper(judged: Judged, name: str, entry: str) -> str:
    """Everything after the judged part. Raises NotSaveable for an argument that is named like the function behind the public one."""
    if CHECKED in judged.names:
        raise NotSaveable(f"`{CHECKED}` is a name that the saved file needs itself", fix="give that argument of the reference another name")
    typed = ", ".join(f"{argument}: Tensor" for argument in judged.names)
    arguments = _tuple(list(judged.names))
    return f'''{_CHECKS.format(checked=CHECKED, public=name, entry=entry)}

def {name}({typed}) -> Tensor | tuple[Tensor, ...]:
    """Contiguous CUDA tensors, as in JUDGED. Raises TypeError or ValueError naming the argument that is wrong."""
    return {CHECKED}({arguments})
'''


def _argument(one: Argument) -> str:
    return f"({one.shape!r}, torch.{one.dtype})"


def _tuple(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
