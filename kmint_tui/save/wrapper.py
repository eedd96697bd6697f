"""The code around the judged part: argument checks, the public function, the reference.

It is written out for one operation, so that it reads like code by an engineer. Matrices may have
any number of leading dimensions; the wrapper flattens them to the judged two without a copy.
"""

from __future__ import annotations

from kmint_tui.save import choosing, direct_call
from kmint_tui.save.choosing import Choice, table
from kmint_tui.save.judged_part import ENTRY_NAME
from kmint_tui.save.operator_code import (
    Registration,
    flat_inputs,
    names_of,
    output_shape,
    parameters_of,
    registered,
    typed_names,
)
from kmint_tui.save.reference_code import reference_function
from kmint_tui.save.support import INT32_ELEMENTS, Support
from referee.ops import Op
from referee.ops.signatures import KINDS, Parameter

_CHECK_TENSOR = '''def _check_tensor(
    name: str,
    tensor: Tensor,
    dtypes: tuple[torch.dtype, ...],
    shape: tuple[int, ...],
    device: torch.device,
) -> None:
    """Raises TypeError or ValueError naming the argument."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, not {type(tensor).__name__}")
    if tensor.dtype not in dtypes:
        raise TypeError(f"{name} must be {' or '.join(map(str, dtypes))}, not {tensor.dtype}")
    if tuple(tensor.shape) != tuple(shape):
        raise ValueError(f"{name} must have shape {tuple(shape)}, not {tuple(tensor.shape)}")
    if tensor.device != device:
        raise ValueError(f"{name} must be on {device}, not on {tensor.device}")
    if tensor.device.type not in ("cuda", "cpu"):
        raise ValueError(f"{name} must be on a GPU or the CPU, not on {tensor.device}")
'''
_CHECK_ELEMENTS = """    if tensor.numel() > MAX_ELEMENTS:
        raise ValueError(f"{name} must have at most {MAX_ELEMENTS} elements, as judged")
"""
_PADDED = '''

def _row_gap(name: str, tensor: Tensor) -> int:
    """Elements between two rows. Raises ValueError for a layout that was not judged."""
    if tensor.is_contiguous():
        return 0
    columns, strides = tensor.shape[-1], tensor.stride()
    rows = [(size, strides[at]) for at, size in enumerate(tensor.shape[:-1]) if size != 1]
    inner = [size * stride for size, stride in rows[1:]]
    even = inner == [stride for _, stride in rows[:-1]]
    distance = rows[-1][1] if rows else 0
    if strides[-1] != 1 or distance < columns or not even:
        raise ValueError(
            f"{name} must be contiguous, or have rows at equal distances; pass copy=True"
        )
{span}    return distance - columns
'''
_SPAN = """    if tensor.numel() // columns * distance > MAX_ELEMENTS:
        raise ValueError(f"{name} must span at most {MAX_ELEMENTS} elements, as judged")
"""
WITH_DIM = frozenset({"softmax", "log_softmax", "cumsum"})
"""Operations that have a `dim` argument in PyTorch."""


def imports(how: Registration, *, chooses: bool = False) -> list[str]:
    """The import lines of every saved file."""
    return [
        "import torch",
        "import torch.nn.functional as F",
        "import triton",
        "import triton.language as tl",
        "from torch import Tensor",
        *direct_call.imports(how),
        *(choosing.imports() if chooses else []),
        *(["from torch.library import triton_op"] if how == "triton_op" else []),
    ]


def constants(support: Support) -> str:
    """The limits that the checks enforce."""
    dtypes = ", ".join(f"torch.{dtype}" for dtype in support.dtypes)
    lines = [f"DTYPES = ({dtypes}{',' if len(support.dtypes) == 1 else ''})"]
    if support.heads:
        lines.append(f"COLUMNS = {support.heads}")
    else:
        lines.append(f"MAX_COLUMNS = {support.max_columns}")
    if not support.large:
        lines.append(f"MAX_ELEMENTS = {INT32_ELEMENTS}")
    return "\n".join(lines) + "\n"


def wrapper(
    op: Op,
    name: str,
    namespace: str,
    support: Support,
    how: Registration,
    choice: Choice | None = None,
) -> str:
    """The code after the judged parts. `name` is the public function's."""
    chooses = choice is not None
    operator = direct_call.announced(how) + registered(op, name, namespace, how, chooses=chooses)
    checked = checked_function(op, name, namespace, support, chooses=chooses)
    tables = [table(choice)] if choice else []
    return "\n\n".join([reference_function(op), *tables, operator, checked])


def checked_function(
    op: Op, name: str, namespace: str, support: Support, *, chooses: bool = False
) -> str:
    """The checks, the direct launch and the public function. On the CPU it calls `reference`."""
    direct = direct_call.direct(op, ENTRY_NAME, chooses=chooses)
    return "\n\n".join([*_checks(op, support), direct, _public(op, name, namespace)])


def _checks(op: Op, support: Support) -> list[str]:
    return [
        _CHECK_TENSOR + ("" if support.large else _CHECK_ELEMENTS),
        _usual(op, support),
        _check(op, support),
        _check_layout(op, support),
    ]


def _usual(op: Op, support: Support) -> str:
    """A quick form of all checks, which passes contiguous tensors. It must pass nothing that the
    checks refuse.
    """
    lead, *rest = parameters_of(op)
    one = lead.name
    first_float = next(parameter.name for parameter in parameters_of(op) if parameter.dtype == "x")
    conditions = [
        *(f"isinstance({other.name}, Tensor)" for other in parameters_of(op)),
        f"len(shape := {one}.shape) > 0",
        "shape[-1] in COLUMNS" if support.heads else "0 < shape[-1] <= MAX_COLUMNS",
        f"({one}.is_cpu or {one}.is_cuda)",
        f"{one}.is_contiguous()",
        *([] if support.large else [f"{one}.numel() <= MAX_ELEMENTS"]),
        f"{one}.dtype in {_dtypes(lead, first_float)}",
    ]
    for other in rest:
        name, wanted = other.name, _dtypes(other, first_float)
        several = other.name == first_float or other.dtype != "x"
        conditions += [
            f"{name}.dtype in {wanted}" if several else f"{name}.dtype == {first_float}.dtype",
            f"{name}.shape == {_shape_by_lead(other)}",
            f"{name}.device == {one}.device",
            f"{name}.is_contiguous()",
        ]
    return "\n".join(
        [
            f"def _usual({typed_names(op)}) -> bool:",
            '    """Whether all checks pass, asked in few words: False where they must be asked."""',
            "    return (",
            f"        {conditions[0]}",
            *(f"        and {condition}" for condition in conditions[1:]),
            "    )",
            "",
        ]
    )


def _shape_by_lead(parameter: Parameter) -> str:
    match parameter.shape:
        case ("M", "N"):
            return "shape"
        case ("M", "H"):
            return "(*shape[:-1], shape[-1] // 2)"
        case ("M", "1"):
            return "(*shape[:-1], 1)"
        case ("M",):
            return "shape[:-1]"
        case ("N",):
            return "shape[-1:]"
    return "(1,)"


def _check(op: Op, support: Support) -> str:
    lead = parameters_of(op)[0].name
    lines = [
        f"def _check({typed_names(op)}) -> None:",
        f"    if not isinstance({lead}, Tensor):",
        f'        raise TypeError(f"{lead} must be a torch.Tensor, not {{type({lead}).__name__}}")',
        f"    if {lead}.dim() == 0:",
        f'        raise ValueError("{lead} must have at least one dimension")',
        f"    rows, columns, device = {lead}.shape[:-1], {lead}.shape[-1], {lead}.device",
    ]
    if support.heads:
        lines += [
            "    if columns not in COLUMNS:",
            f'        raise ValueError(f"{lead}: the last dimension must be one of {{COLUMNS}}, '
            f'not {{columns}}")',
        ]
    else:
        lines += [
            "    if not 1 <= columns <= MAX_COLUMNS:",
            "        raise ValueError(",
            f'            f"{lead}: the last dimension must be 1 to {{MAX_COLUMNS}}, as judged, '
            f'not {{columns}}"',
            "        )",
        ]
    first_float = next(parameter.name for parameter in parameters_of(op) if parameter.dtype == "x")
    for parameter in parameters_of(op):
        lines.append(
            f'    _check_tensor("{parameter.name}", {parameter.name}, '
            f"{_dtypes(parameter, first_float)}, {_shape(parameter)}, device)"
        )
    return "\n".join(lines) + "\n"


def _check_layout(op: Op, support: Support) -> str:
    head = f"def _check_layout({typed_names(op)}) -> None:"
    if not support.padded:
        return "\n".join([head, *_contiguous([one.name for one in parameters_of(op)])]) + "\n"
    gap = _PADDED.lstrip("\n").replace("{span}", "" if support.large else _SPAN)
    return "\n".join([gap, "", head, *_layout(op)]) + "\n"


def _contiguous(names: list[str]) -> list[str]:
    lines = []
    for name in names:
        lines += [
            f"    if not {name}.is_contiguous():",
            f'        raise ValueError("{name} must be contiguous; pass copy=True")',
        ]
    return lines


def _layout(op: Op) -> list[str]:
    """Checks of the layout: all matrices may have the same gap after every row; the rest is
    contiguous.
    """
    matrices = [
        parameter.name
        for parameter in parameters_of(op)
        if parameter.shape[0] == "M" and len(parameter.shape) == 2
    ]
    lead, *rest = matrices
    lines = [f'    gap = _row_gap("{lead}", {lead})' if rest else f'    _row_gap("{lead}", {lead})']
    for name in rest:
        lines += [
            f'    if _row_gap("{name}", {name}) != gap:',
            f'        raise ValueError("{name} must have the row gap of {lead}; pass copy=True")',
        ]
    return lines + _contiguous([one.name for one in parameters_of(op) if one.name not in matrices])


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


def _public(op: Op, name: str, namespace: str) -> str:
    parameters = parameters_of(op)
    lead, names = parameters[0].name, names_of(op)
    copies = [f"                {one.name} = {one.name}.contiguous()" for one in parameters]
    dim = op.name in WITH_DIM
    return (
        "\n".join(
            [
                f"def {name}({typed_names(op)}{', dim: int = -1' if dim else ''}, *, copy: bool = "
                "False) -> Tensor:",
                f'    """{_sentence(op, dim=dim)}"""',
                *(_moved(name, lead) if dim else []),
                "    traced = torch.compiler.is_compiling()",
                f"    key = None if traced else _key({names})",
                "    kernel = None if key is None else _KEPT.get(key)",
                "    if kernel is None:",
                f"        if traced or not _usual({names}):",
                f"            _check({names})",
                "            if copy:",
                *copies,
                "                key = None",
                "            else:",
                f"                _check_layout({names})",
                f'        if {lead}.device.type == "cpu" and not traced:',
                f"            return reference({names})",
                "        if key is None:",
                f"            rows = {lead}.numel() // {lead}.shape[-1]",
                "            # Not _op: a second import of this file by another name ends it.",
                f"            found: Tensor = torch.ops.{namespace}.{name}({flat_inputs(op, 'rows')})",
                f"            return found.reshape({output_shape(op)})",
                f"        kernel = _kernel_of({names}, key)",
                f"    return _launched(kernel, {names})",
            ]
        )
        + "\n"
    )


def _moved(name: str, lead: str) -> list[str]:
    """Code that moves another dimension to the end, if the user allows a copy."""
    return [
        f"    if isinstance({lead}, Tensor) and dim not in (-1, {lead}.dim() - 1):",
        "        if not copy:",
        '            raise ValueError(f"dim must be the last dimension, as judged, not {dim}; '
        'pass copy=True")',
        f"        return {name}({lead}.movedim(dim, -1), copy=True).movedim(-1, dim)",
    ]


def _sentence(op: Op, *, dim: bool) -> str:
    shapes = ", ".join(
        f"{p.name} ({', '.join('...' if s == 'M' else s for s in p.shape)})"
        for p in KINDS[op.kind].parameters
    )
    out = ", ".join("..." if symbol == "M" else symbol for symbol in KINDS[op.kind].output)
    last = "    Then dim may be any dimension, which is brought to the end.\n" if dim else ""
    return (
        f"{shapes} -> ({out}).\n\n    With copy, tensors of any layout are taken, and copied "
        f"where needed.\n{last}"
        "    Raises TypeError or ValueError naming the argument that is wrong.\n    "
    )
