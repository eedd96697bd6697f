"""The direct launch of a saved file: a call that no part of PyTorch has to see skips the operator.

A registered operator costs the host more than Triton's launch, which decides a call of few rows.
So the saved function launches its kernel itself, unless a gradient, a transform, a mode or a trace
needs the operator. A call that passed the checks is known again by all that the checks read.

PyTorch has no public question for its modes and transforms. The saved file asks PyTorch's own names
for them, and always calls the operator where another PyTorch lacks one of these names. Triton's
launch stays `kernel[grid](...)`, which specialises each call for its alignment, stream and device.
"""

from __future__ import annotations

from kmint_tui.save.operator_code import (
    Registration,
    dtype_of,
    flat_inputs,
    names_of,
    output_shape,
    parameters_of,
    typed_names,
)
from referee.ops import Op

MOST_KEPT = 1024
"""Kinds of calls that a saved file keeps. One more empties the table, which is filled again."""

_ANNOUNCED = '''class _Thread(threading.local):
    """Whether this thread is in the operator, whose launches torch.compile must see."""

    in_operator = False


_thread = _Thread()


def wrap_triton(kernel):
    """The kernel as torch.compile takes it, or the kernel itself for a direct launch."""
    return torch.library.wrap_triton(kernel) if _thread.in_operator else kernel


'''
_SEEN = f'''_PLAIN = (Tensor, torch.nn.Parameter)
_KEPT: dict[tuple[object, ...], Callable[..., Tensor]] = {{}}
_MOST_KEPT = {MOST_KEPT}


def _seen() -> bool:
    """Whether PyTorch must see every operator, for a mode, a transform or a trace."""
    try:
        return bool(
            torch._C._len_torch_dispatch_stack()
            or torch._C._are_functorch_transforms_active()
            or forward_ad._current_level >= 0
            or torch._C._get_tracing_state()
        )
    except AttributeError:  # These names are not public; without them every call is seen.
        return True
'''


def imports(how: Registration) -> list[str]:
    """The imports that the code of this module needs."""
    lines = [
        "from collections.abc import Callable",
        "from torch.autograd import forward_ad",
        "from torch.overrides import has_torch_function",
    ]
    return ["import threading", *lines] if how == "triton_op" else lines


def announced(how: Registration) -> str:
    """`wrap_triton`, which the judged part of a `triton_op` calls."""
    return _ANNOUNCED if how == "triton_op" else ""


def direct(op: Op, entry: str, *, chooses: bool) -> str:
    """The functions of a direct launch; `entry` is the kernel of a file that does not choose."""
    return "\n\n".join([_SEEN, _key(op), _launched(op, entry, chooses=chooses)])


def _key(op: Op) -> str:
    names = [one.name for one in parameters_of(op)]
    lead, *rest = names
    grads = " or ".join(f"{one}.requires_grad" for one in names)
    conditions = [
        f"not {lead}.is_cuda",
        *(f"type({one}) not in _PLAIN" for one in rest),
        f"has_torch_function([{', '.join(names)}])",
        f"(torch.is_grad_enabled() and ({grads}))",
        *(f"{one}.is_neg()" for one in names),
        "_seen()",
    ]
    read = [f"{one}.{what}" for one in names for what in ("shape", "stride()", "dtype", "device")]
    return "\n".join(
        [
            f"def _key({typed_names(op)}) -> tuple[object, ...] | None:",
            '    """All that the checks read, None for a call that PyTorch must see or refuse."""',
            "    if (",
            f"        type({lead}) not in _PLAIN",
            *(f"        or {condition}" for condition in conditions),
            "    ):",
            "        return None",
            "    try:",
            f"        if not ({' and '.join(f'{one}.data_ptr()' for one in names)}):",
            "            return None",
            "        return (",
            *(f"            {one}," for one in read),
            "        )",
            "    except RuntimeError:  # Sparse and nested tensors have no pointer or no strides.",
            "        return None",
            "",
        ]
    )


def _launched(op: Op, entry: str, *, chooses: bool) -> str:
    lead, names = parameters_of(op)[0].name, names_of(op)
    shape = output_shape(op)
    # reshape() takes longer for a tuple than for another tensor.
    same = shape == f"{lead}.shape"
    answer = f"found.reshape_as({lead})" if same else f"found.reshape({shape})"
    kernel = entry
    if chooses:
        rows = f"{lead}.numel() // {lead}.shape[-1]"
        kernel = f"_kernel_for({rows}, {lead}.shape[-1], {dtype_of(op)}.dtype)"
    return "\n".join(
        [
            f"def _kernel_of({typed_names(op)}, key: tuple[object, ...]) -> Callable[..., Tensor]:",
            '    """The kernel for a call that passed the checks, kept for all calls of its key."""',
            "    if len(_KEPT) >= _MOST_KEPT:",
            "        _KEPT.clear()",
            f"    kernel: Callable[..., Tensor] = {kernel}",
            "    _KEPT[key] = kernel",
            "    return kernel",
            "",
            "",
            f"def _launched(kernel: Callable[..., Tensor], {typed_names(op)}) -> Tensor:",
            '    """The answer of a kernel that is launched here, on the device of the tensors."""',
            f"    if {lead}.get_device() != torch.cuda.current_device():",
            f"        with torch.cuda.device_of({lead}):",
            f"            return _launched(kernel, {names})",
            f"    if {lead}.dim() == 2:",
            f"        return kernel({names})",
            f"    found = kernel({flat_inputs(op, '-1')})",
            f"    return {answer}",
            "",
        ]
    )
