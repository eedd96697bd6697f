"""The `python` command that calls a saved kernel once, for the user to try and to change."""

from __future__ import annotations

import math
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from kmint_tui.save.own_reference import Judged, Signature
from kmint_tui.save.support import Support
from referee.ops.signatures import KINDS, Parameter
from referee.ops.spec import Op

_ROWS, _COLUMNS = 8, 1000
_ON_GPU = ", device='cuda'"


def call(op: Op, stem: str, able: Support | Judged, *, gpu: bool) -> str:
    """A call of the saved function on inputs that it accepts, as a Python expression.

    A kernel for a user's own reference takes CUDA tensors only. Without a `gpu` a kernel of the
    catalogue gets CPU tensors, for which the file's reference() computes the answer.
    """
    if isinstance(able, Judged):
        return f"{stem}({', '.join(_own_arguments(able))})"
    return f"{stem}({', '.join(arguments(op, able, gpu=gpu))})"


def arguments(
    op: Op, able: Support, *, gpu: bool, rows: int = _ROWS, columns: int = _COLUMNS
) -> list[str]:
    """The inputs of such a call, with this number of columns if the file takes them."""
    most = able.heads[0] if able.heads else min(columns, able.max_columns)
    parameters = KINDS[op.kind].parameters
    return [_argument(one, able, gpu=gpu, rows=rows, columns=most) for one in parameters]


def command(file: Path, expression: str) -> str:
    """The shell command that imports the saved file and prints what the call returns."""
    folder, module = file.parent, file.stem
    where = ""
    if _importable(folder):
        module = ".".join((*folder.parts, module))
    else:
        where = f"cd {shlex.quote(str(folder))} && "
    program = f"import torch; from {module} import {file.stem}; print({expression})"
    return f'{where}{_python()} -c "{program}"'


def _python() -> str:
    """`python` if the shell finds this environment under that name, else its whole path."""
    found = shutil.which("python")
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        return "python"
    return shlex.quote(sys.executable)


def _importable(folder: Path) -> bool:
    """True if Python finds the folder from the current one.

    The folder must be a relative path of identifiers and no installed package. Folders without
    __init__.py that share a name do not hide each other.
    """
    parts = folder.parts
    if folder.is_absolute() or not all(part.isidentifier() for part in parts):
        return False
    found = find_spec(parts[0]) if parts else None
    return found is None or found.origin is None


def _argument(parameter: Parameter, able: Support, *, gpu: bool, rows: int, columns: int) -> str:
    sizes = {"M": rows, "N": columns, "H": columns // 2, "1": 1}
    shape = ", ".join(str(sizes[symbol]) for symbol in parameter.shape)
    device = _ON_GPU if gpu else ""
    if parameter.dtype == "int8":
        return f"torch.ones({shape}, dtype=torch.int8{device})"
    if parameter.dtype == "int64":
        return f"torch.randint({columns}, ({shape},){device})"
    dtype = "" if "float32" in able.dtypes else f", dtype=torch.{able.dtypes[0]}"
    return f"torch.randn({shape}{dtype}{device})"


def _own_arguments(able: Judged) -> list[str]:
    """Tensors of the least judged sizes; numbers without a default at their first judged value."""
    tensors = dict(zip(able.tensors, _own_tensors(able.signatures[0]), strict=True))
    numbers = {one.name: one for one in able.numbers}
    given = []
    for name in able.names:
        if name in tensors:
            given.append(tensors[name])
        else:
            number = numbers[name]
            given.append(_number(number.values[0] if number.default is None else number.default))
    return given


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else f"float('{value}')"


def _own_tensors(signature: Signature) -> list[str]:
    sizes = {symbol: one.least for symbol, one in signature.sizes}
    tensors = []
    for tensor in signature.tensors:
        shape = tuple(one if isinstance(one, int) else one.at(sizes) for one in tensor.shape)
        # Every tensor has the index zero.
        values = "randn" if "float" in tensor.dtype else "zeros"
        tensors.append(f"torch.{values}({shape}, dtype=torch.{tensor.dtype}{_ON_GPU})")
    return tensors
