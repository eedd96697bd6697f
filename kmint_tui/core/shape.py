"""The shapes at which an operation of the catalogue is timed, where the usual one is not wanted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from kmint_tui.errors import EnvironmentUnfit, UsageError

if TYPE_CHECKING:
    from referee.asked_shape import AskedShape
    from referee.ops import Op

_FIX = "for example --shape 32768x1024:bf16, or --shape Mx1024 --dtype bf16 for several numbers of rows"
GIB = 1 << 30


def wanted_shapes(op: Op, shapes: tuple[str, ...], dtype: str | None) -> tuple[str, ...]:
    """The shapes as `TaskName` has them; empty where the options name none.

    Raises UsageError as `asked_shapes` does.
    """
    if not shapes and dtype is None:
        return ()
    return tuple(dict.fromkeys(map(str, asked_shapes(op, shapes or (_usual(op),), dtype))))


def previewed(op: Op, shapes: tuple[str, ...], dtype: str | None) -> tuple[AskedShape, ...]:
    """The shapes that the options name, without a look at the memory of the GPU.

    Raises UsageError for a text that is no shape, and a shape that the operation cannot have.
    """
    if not shapes and dtype is None:
        return ()
    named = _possible(op, shapes or (_usual(op),), dtype)
    return tuple(dict.fromkeys(one for some in named for one in some))


def in_words(shapes: Sequence[AskedShape]) -> str:
    """Shapes as a person writes them, with one dtype for all where they share it."""
    from referee.asked_shape import SHORT

    dtypes = {one.dtype for one in shapes}
    if len(dtypes) != 1:
        return ", ".join(f"{one.rows}x{one.columns}:{SHORT[one.dtype]}" for one in shapes)
    return f"{', '.join(f'{one.rows}x{one.columns}' for one in shapes)} in {SHORT[dtypes.pop()]}"


def asked_shapes(op: Op, shapes: tuple[str, ...], dtype: str | None) -> list[AskedShape]:
    """The shapes that the texts name; those without a dtype get `dtype`, or float16.

    `Mx4096` is several numbers of rows, without those that do not fit into the GPU's memory. Raises
    UsageError for a text that is no shape, a shape that the operation cannot have, and too little
    GPU memory.
    """
    from referee.asked_shape import needed_bytes

    named = _possible(op, shapes, dtype)
    memory = _memory()
    if memory is None:
        return [one for some in named for one in some]
    found: list[AskedShape] = []
    for some in named:
        fitting = [one for one in some if needed_bytes(op, one) <= memory]
        if not fitting:
            needed = needed_bytes(op, some[0])
            reason = f"a verdict at {some[0]} takes {needed / GIB:.1f} GiB of GPU memory, and this GPU has {memory / GIB:.1f}"
            raise UsageError(reason, title="shape not usable", fix="give fewer rows")
        found += fitting
    return found


def refuse_unjudged(op: Op, shapes: tuple[str, ...]) -> None:
    """Raise EnvironmentUnfit for a shape whose rows are too long to be judged without a GPU."""
    from kmint_tui.core.referee import no_gpu_reason
    from referee.asked_shape import MOST_INTERPRETED, AskedShape, interpretable

    reason = no_gpu_reason()
    for text in shapes if reason is not None else ():
        if not interpretable(op, AskedShape.parse(text)):
            most = f"Triton's interpreter, which takes {MOST_INTERPRETED:,} elements"
            raise EnvironmentUnfit(
                f"a row of {text} is too long for {most}, and there is no GPU: {reason}",
                title="too large for this machine",
                fix="give fewer columns, or judge on a GPU",
            )


def usable_shapes(op: str, shapes: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the shapes of a saved file that the operation `op` can be judged at on this machine."""
    from referee.ops import UnknownOp, get

    found = []
    for one in shapes:
        with suppress(UsageError, EnvironmentUnfit, UnknownOp):
            refuse_unjudged(get(op), tuple(map(str, asked_shapes(get(op), (one,), None))))
            found.append(one)
    return tuple(found)


def _possible(op: Op, shapes: tuple[str, ...], dtype: str | None) -> list[tuple[AskedShape, ...]]:
    """For each text the shapes that the operation can have, the fewest rows first.

    Raises UsageError for a text without any.
    """
    from referee.asked_shape import DTYPES, ShapeError, possible, shapes_of

    try:
        if dtype is not None and dtype not in DTYPES:
            raise ShapeError(f"--dtype {dtype} is none of {', '.join(DTYPES)}")
        named = [shapes_of(text, DTYPES[dtype] if dtype else "float16") for text in shapes]
        return [possible(op, some) for some in named]
    except ShapeError as error:
        raise UsageError(str(error), title="shape not usable", fix=_FIX) from error


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
