"""The part of a saved file around the judged one: argument checks, the registered op, the public function, the reference.

Written out for the op at hand, so that it reads like code an engineer wrote for it. Matrices may have any number of leading
dimensions; they are flattened to the two that were judged, without copying.
"""

from __future__ import annotations

from kmint_tui.save.judged_part import ENTRY_NAME
from kmint_tui.save.reference_code import reference_function
from kmint_tui.save.support import INT32_ELEMENTS, Support
from kmint_tui.save.traceable import Registration
from referee.ops import Op
from referee.ops.signatures import KINDS, Parameter

_CHECK_TENSOR = '''def _check_tensor(
    name: str, tensor: Tensor, dtypes: tuple[torch.dtype, ...], shape: tuple[int, ...], device: torch.device
) -> None:
    """Raises TypeError or ValueError naming the argument."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, not {type(tensor).__name__}")
    if tensor.dtype not in dtypes:
        raise TypeError(f"{name} must be {' or '.join(str(dtype) for dtype in dtypes)}, not {tensor.dtype}")
    if tuple(tensor.shape) != tuple(shape):
        raise ValueError(f"{name} must have shape {tuple(shape)}, not {tuple(tensor.shape)}")
    if tensor.device != device:
        raise ValueError(f"{name} must be on {device}, not on {tensor.device}")
    if tensor.device.type not in ("cuda", "cpu"):
        raise ValueError(f"{name} must be on a GPU (or on the CPU, for the reference), not on {tensor.device}")
'''
_CHECK_ELEMENTS = """    if tensor.numel() > MAX_ELEMENTS:
        raise ValueError(f"{name} has {tensor.numel()} elements; the kernel was judged with at most {MAX_ELEMENTS}")
"""
_CHECK_CONTIGUOUS = """    if not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous; pass {name}.contiguous()")
"""
_PADDED = '''

def _row_gap(name: str, tensor: Tensor) -> int:
    """Elements between the end of a row and the next one. Raises ValueError for a layout the kernel was not judged with."""
    if tensor.is_contiguous():
        return 0
    if tensor.dim() != 2 or tensor.stride(1) != 1 or tensor.stride(0) < tensor.shape[1]:
        raise ValueError(f"{name} must be contiguous, or a matrix with contiguous rows; pass {name}.contiguous()")
    return tensor.stride(0) - tensor.shape[1]
'''


def imports() -> str:
    """What every saved file imports."""
    return "import torch\nimport torch.nn.functional as F\nimport triton\nimport triton.language as tl\nfrom torch import Tensor\n"


def constants(support: Support) -> str:
    """The limits that the checks hold callers to."""
    dtypes = ", ".join(f"torch.{dtype}" for dtype in support.dtypes)
    lines = [f"DTYPES = ({dtypes}{',' if len(support.dtypes) == 1 else ''})"]
    if support.heads:
        lines.append(f"COLUMNS = {support.heads}")
    else:
        lines.append(f"MAX_COLUMNS = {support.max_columns}")
    if not support.large:
        lines.append(f"MAX_ELEMENTS = {INT32_ELEMENTS}")
    return "\n".join(lines) + "\n"


def wrapper(op: Op, name: str, namespace: str, support: Support, how: Registration) -> str:
    """Everything after the judged part. `name` is the public function's."""
    parts = [
        reference_function(op),
        _CHECK_TENSOR + ("" if support.large else _CHECK_ELEMENTS) + (_PADDED if support.padded else _CHECK_CONTIGUOUS),
        _check(op, support),
        _registered(op, name, namespace, how),
        _public(op, name),
    ]
    return "\n\n".join(parts)


def _parameters(op: Op) -> tuple[Parameter, ...]:
    return KINDS[op.kind].parameters


def _typed(op: Op) -> str:
    return ", ".join(f"{parameter.name}: Tensor" for parameter in _parameters(op))


def _names(op: Op) -> str:
    return ", ".join(parameter.name for parameter in _parameters(op))


def _check(op: Op, support: Support) -> str:
    lead = _parameters(op)[0].name
    lines = [
        f"def _check({_typed(op)}) -> None:",
        f"    if not isinstance({lead}, Tensor):",
        f'        raise TypeError(f"{lead} must be a torch.Tensor, not {{type({lead}).__name__}}")',
        f"    if {lead}.dim() == 0:",
        f'        raise ValueError("{lead} must have at least one dimension")',
        f"    rows, columns, device = {lead}.shape[:-1], {lead}.shape[-1], {lead}.device",
    ]
    if support.heads:
        lines += [
            "    if columns not in COLUMNS:",
            f'        raise ValueError(f"the last dimension of {lead} must be one of {{COLUMNS}}, not {{columns}}")',
        ]
    else:
        lines += [
            "    if not 1 <= columns <= MAX_COLUMNS:",
            f'        raise ValueError(f"the last dimension of {lead} must be 1 to {{MAX_COLUMNS}}, as judged, not {{columns}}")',
        ]
    first_float = next(parameter.name for parameter in _parameters(op) if parameter.dtype == "x")
    for parameter in _parameters(op):
        lines.append(
            f'    _check_tensor("{parameter.name}", {parameter.name}, {_dtypes(parameter, first_float)}, {_shape(parameter)}, device)'
        )
    if support.padded:
        lines += _layout(op)
    return "\n".join(lines) + "\n"


def _layout(op: Op) -> list[str]:
    """Matrices may have a gap after every row, the same in all of them, as they were judged; the rest is contiguous."""
    matrices = [parameter.name for parameter in _parameters(op) if parameter.shape[0] == "M" and len(parameter.shape) == 2]
    lead, *rest = matrices
    lines = [f'    gap = _row_gap("{lead}", {lead})' if rest else f'    _row_gap("{lead}", {lead})']
    for name in rest:
        lines += [
            f'    if _row_gap("{name}", {name}) != gap:',
            f'        raise ValueError("{name} must have the same gap between its rows as {lead}; pass {name}.contiguous()")',
        ]
    for name in (parameter.name for parameter in _parameters(op) if parameter.name not in matrices):
        lines += [f"    if not {name}.is_contiguous():", f'        raise ValueError("{name} must be contiguous; pass {name}.contiguous()")']
    return lines


def _dtypes(parameter: Parameter, first_float: str) -> str:
    if parameter.dtype != "x":
        return f"(torch.{parameter.dtype},)"
    return "DTYPES" if parameter.name == first_float else f"({first_float}.dtype,)"


def _shape(parameter: Parameter) -> str:
    match parameter.shape:
        case ("M", "N"):
            return "(*rows, columns)"
        case ("M", "H"):
            return "(*rows, columns // 2)"
        case ("M", "1"):
            return "(*rows, 1)"
        case ("M",):
            return "rows"
        case ("N",):
            return "(columns,)"
    return "(1,)"


def _registered(op: Op, name: str, namespace: str, how: Registration) -> str:
    lead = _parameters(op)[0].name
    dtype_of = next(parameter.name for parameter in _parameters(op) if parameter.dtype == "x")
    shape = f"{lead}.shape" if KINDS[op.kind].output == ("M", "N") else f"{lead}.shape[:1]"
    empty = f"torch.empty({shape}, dtype={dtype_of}.dtype, device={lead}.device)"
    body = [f"    if {lead}.shape[0] == 0:", f"        return {empty}", f"    with torch.cuda.device({lead}.device):"]
    body.append(f"        return {ENTRY_NAME}({_names(op)})")
    cpu = [
        f'    if {lead}.device.type == "cpu":',
        "        # torch.compile looks into this function also when the tensors are on the CPU.",
        f"        return reference({_names(op)})",
    ]
    lines = [f'@{"torch.library.custom_op" if how == "custom_op" else "triton_op"}("{namespace}::{name}", mutates_args=())']
    lines += [f"def _op({_typed(op)}) -> Tensor:", *(cpu if how == "triton_op" else []), *body, "", ""]
    if how == "custom_op":
        lines += ["@_op.register_fake", f"def _fake({_typed(op)}) -> Tensor:", f"    return {empty}", "", ""]
    lines += ['@_op.register_kernel("cpu")', f"def _cpu({_typed(op)}) -> Tensor:", f"    return reference({_names(op)})", "", ""]
    message = f"{name} has no backward: call it under torch.no_grad(), or train with reference()"
    lines += ["def _no_backward(ctx: object, *gradients: Tensor) -> None:", f'    raise NotImplementedError("{message}")', "", ""]
    lines.append("_op.register_autograd(_no_backward)")
    return "\n".join(lines) + "\n"


def _public(op: Op, name: str) -> str:
    parameters = _parameters(op)
    lead = parameters[0].name
    flat = [_flat(parameter) if parameter.shape[0] == "M" else parameter.name for parameter in parameters]
    result = f"{lead}.shape" if KINDS[op.kind].output == ("M", "N") else f"{lead}.shape[:-1]"
    return (
        "\n".join(
            [
                f"def {name}({_typed(op)}) -> Tensor:",
                f'    """{_sentence(op)}"""',
                f"    _check({_names(op)})",
                f"    rows = {lead}.shape[:-1].numel()",
                f"    return _op({', '.join(flat)}).reshape({result})",
            ]
        )
        + "\n"
    )


def _flat(parameter: Parameter) -> str:
    return f"{parameter.name}.reshape(rows)" if len(parameter.shape) == 1 else f"{parameter.name}.reshape(rows, {parameter.name}.shape[-1])"


def _sentence(op: Op) -> str:
    shapes = ", ".join(f"{p.name} ({', '.join('...' if s == 'M' else s for s in p.shape)})" for p in KINDS[op.kind].parameters)
    out = ", ".join("..." if symbol == "M" else symbol for symbol in KINDS[op.kind].output)
    return f"{shapes} -> ({out}). Raises TypeError or ValueError naming the argument that is wrong."
