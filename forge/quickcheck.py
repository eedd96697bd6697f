"""A fast first look at a kernel: Triton's interpreter in this process, on a few small cells, against the float64 oracle.

Not a referee: the source is executed as it is, so it is for our own grammar and for drafts of our own small smith, inside
a throw-away worker. What counts is the verdict of `referee` (`forge/validate.py`).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
SEED = 7


def load_run(source: str) -> Any:
    """The `run` function of a source. Triton needs the source in a file. Raises whatever the module raises."""
    os.environ["TRITON_INTERPRET"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "candidate.py"
        path.write_text(IMPORTS + source, encoding="utf-8")
        scope: dict[str, Any] = {"__name__": "candidate"}
        import linecache

        code = compile(IMPORTS + source, str(path), "exec")
        linecache.checkcache(str(path))
        linecache.getlines(str(path))
        exec(code, scope)
    return scope["run"]


def quick_check(op_name_or_op: Any, source: str, *, cells: int = 4) -> str:
    """ "" when the kernel agrees with the oracle on the first required cells, else one line that says why not."""
    import torch

    from forge.ops import task
    from referee.ops import get
    from referee.ops.values import draw

    chosen = task(get(op_name_or_op) if isinstance(op_name_or_op, str) else op_name_or_op)
    order = chosen.required[:3] + chosen.required[-1:] if cells == 4 else chosen.required[:cells]
    try:
        run = load_run(source)
        for cell in order:
            inputs = draw(cell, SEED)
            copies = tuple(tensor.clone() for tensor in inputs)
            got = run(*inputs)
            expected = chosen.oracle(*copies)
            spec = cell.outputs[0]
            if tuple(got.shape) != spec.shape or got.dtype != getattr(torch, spec.dtype):
                return f"{cell.name}: shape or dtype {tuple(got.shape)} {got.dtype}"
            if any(not torch.equal(a, b) for a, b in zip(inputs, copies, strict=True)):
                return f"{cell.name}: an input was changed"
            allowed = chosen.tolerances[spec.dtype]
            rounded = expected.to(got.dtype)
            eager_error = (chosen.eager(*copies).double() - expected).abs().nan_to_num(0.0, 0.0, 0.0).max()
            error = torch.where(got == rounded, 0.0, (got.double() - expected).abs())
            limit = allowed.atol + allowed.rtol * expected.abs() + 2 * eager_error
            if not bool((error <= limit).all()):
                return f"{cell.name}: error {float(error.nan_to_num(nan=9e9).max()):.3g}"
    except Exception as error:  # any failure of a candidate is a verdict, not ours
        return f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:160] if str(error).strip() else ''}"
    return ""
