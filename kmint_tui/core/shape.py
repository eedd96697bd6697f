"""The shapes at which an operation of the catalogue is timed, where the usual one is not wanted."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from referee.asked_shape import AskedShape
    from referee.ops import Op

_FIX = "for example --shape 32768x1024 --dtype bf16, or --shape 32768x1024:bf16"
GIB = 1 << 30


def wanted_shapes(op: Op, shapes: tuple[str, ...], dtype: str | None) -> tuple[str, ...]:
    """The shapes as `TaskName` has them; empty where the options name none.

    Raises UsageError as `asked_shapes` does.
    """
    if not shapes and dtype is None:
        return ()
    return tuple(dict.fromkeys(map(str, asked_shapes(op, shapes or (_usual(op),), dtype))))


def asked_shapes(op: Op, shapes: tuple[str, ...], dtype: str | None) -> list[AskedShape]:
    """The shapes that the texts name; those without a dtype get `dtype`, or float16.

    Raises UsageError for a text that is no shape, a shape that the operation cannot have, and too
    little GPU memory.
    """
    from referee.asked_shape import DTYPES, AskedShape, ShapeError, check, needed_bytes

    try:
        if dtype is not None and dtype not in DTYPES:
            raise ShapeError(f"--dtype {dtype} is none of {', '.join(DTYPES)}")
        found = [AskedShape.parse(text, DTYPES[dtype] if dtype else "float16") for text in shapes]
        for shape in found:
            check(op, shape)
    except ShapeError as error:
        raise UsageError(str(error), title="shape not usable", fix=_FIX) from error
    memory = _memory()
    for shape in found:
        needed = needed_bytes(op, shape)
        if memory is not None and needed > memory:
            reason = f"a verdict at {shape} takes {needed / GIB:.1f} GiB of GPU memory, and this GPU has {memory / GIB:.1f}"
            raise UsageError(reason, title="shape not usable", fix="give fewer rows")
    return found


def usable_shapes(op: str, shapes: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the shapes of a saved file that the operation `op` can be judged at on this machine."""
    from referee.ops import UnknownOp, get

    found = []
    for one in shapes:
        with suppress(UsageError, UnknownOp):
            asked_shapes(get(op), (one,), None)
            found.append(one)
    return tuple(found)


def _usual(op: Op) -> str:
    from referee.ops.signatures import ROPE_KINDS

    return "32768x128" if op.kind in ROPE_KINDS else "8192x4096"


def _memory() -> int | None:
    """Bytes of memory of the GPU that times kernels; None without one."""
    from kmint_tui.core.referee import no_gpu_reason

    if no_gpu_reason() is not None:
        return None
    import torch

    return int(torch.cuda.get_device_properties(0).total_memory)
