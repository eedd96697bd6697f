"""Shapes that a user names on the command line: timed cases on a GPU, judged cases without one."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import prod

from referee.ops.cell_spec import CellSpec
from referee.ops.cells import Profile, cell_of
from referee.ops.signatures import KINDS, ROPE_KINDS
from referee.ops.spec import Cell, Dtype, Op
from referee.plans.dtypes import ITEMSIZE

DTYPES: dict[str, Dtype] = {
    "fp16": "float16",
    "float16": "float16",
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp32": "float32",
    "float32": "float32",
}
"""Dtype names that users may write, and the referee's names for them."""
SHORT: dict[str, str] = {dtype: name for name, dtype in reversed(DTYPES.items())}
"""The shortest name of each dtype."""

MOST_ELEMENTS = 1 << 31
"""Maximum number of elements of one tensor, about that of the catalogue's largest case."""
COPIES = 8
"""GPU memory of a verdict as a multiple of its tensors, with float64 and baselines' answers."""
ANY_ROWS, ROW_COUNTS = "M", (1, 64, 2048, 32768)
"""The rows of `Mx4096`, and the numbers that it stands for: decoding to blocks of training."""
FEW_ROWS, MOST_INTERPRETED = 3, 1 << 18
"""Maximum number of rows, and of elements, of the case that replaces a shape in the interpreter."""
GIB = 1 << 30
_TEXT = re.compile(rf"({ANY_ROWS}|[1-9]\d{{0,11}})x([1-9]\d{{0,11}})(?::(\w+))?")


class ShapeError(ValueError):
    """The text is no shape, or the operation cannot have this shape; the message says why."""


@dataclass(frozen=True)
class AskedShape:
    """Rows, columns and dtype of an operation's rows. Its text form is `32768x1024:bfloat16`."""

    rows: int
    columns: int
    dtype: Dtype

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}:{self.dtype}"

    @classmethod
    def parse(cls, text: str, dtype: Dtype = "float16") -> AskedShape:
        """Read `32768x1024` or `32768x1024:bf16`; `dtype` is the default. Raises ShapeError."""
        found = shapes_of(text, dtype)
        if len(found) > 1:
            raise ShapeError(f"{text!r} is several shapes")
        return found[0]


def shapes_of(text: str, dtype: Dtype = "float16") -> tuple[AskedShape, ...]:
    """The shape that a text names; with `M` for the rows one shape for each of `ROW_COUNTS`.

    A text without a dtype gets `dtype`. Raises ShapeError.
    """
    found = _TEXT.fullmatch(text.strip())
    if found is None:
        raise ShapeError(f"{text[:40]!r} is no shape")
    rows, columns, named = found.groups()
    if named is not None and named not in DTYPES:
        raise ShapeError(f"{named[:40]} is none of {', '.join(DTYPES)}")
    of = DTYPES[named] if named else dtype
    counts = ROW_COUNTS if rows == ANY_ROWS else (int(rows),)
    return tuple(AskedShape(count, int(columns), of) for count in counts)


def check(op: Op, shape: AskedShape) -> None:
    """Raise ShapeError if the operation has no case of this shape."""
    if op.kind not in KINDS:
        raise ShapeError(f"the examples of {op.name} say its sizes")
    if op.kind == "dequant" and shape.dtype != "float16":
        raise ShapeError(f"{op.name} gives float16 alone, and not {shape.dtype}")
    if op.kind in ROPE_KINDS and shape.columns % 2:
        raise ShapeError(f"{op.name} turns pairs of columns, and {shape.columns} is odd")
    if shape.rows * shape.columns > MOST_ELEMENTS:
        size = shape.rows * shape.columns * ITEMSIZE[shape.dtype] / GIB
        raise ShapeError(
            f"{shape} has {size:.1f} GiB in one tensor; the referee takes up to {MOST_ELEMENTS:,} elements"
        )


def possible(op: Op, shapes: tuple[AskedShape, ...]) -> tuple[AskedShape, ...]:
    """Those of the shapes that the operation has a case of; the error of the first if it has none.

    Raises ShapeError.
    """
    found, errors = list[AskedShape](), list[ShapeError]()
    for shape in shapes:
        try:
            check(op, shape)
            found.append(shape)
        except ShapeError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    return tuple(found)


def needed_bytes(op: Op, shape: AskedShape) -> int:
    """Upper bound of the GPU memory, in bytes, that a verdict at the shape takes."""
    cell = _cell(op, shape)
    return COPIES * sum(
        prod(spec.shape) * ITEMSIZE[spec.dtype] for spec in (*cell.inputs, *cell.outputs)
    )


def feasible(cell: Cell) -> bool:
    """Whether the interpreter can run the cell in reasonable time."""
    return all(prod(spec.shape) <= MOST_INTERPRETED for spec in (*cell.inputs, *cell.outputs))


def interpretable(op: Op, shape: AskedShape) -> bool:
    """Whether the interpreter can run one row of the shape."""
    return feasible(_cell(op, replace(shape, rows=1)))


def with_shapes(
    op: Op,
    cells: tuple[Cell, ...],
    shapes: tuple[AskedShape, ...],
    profile: Profile,
    timed: tuple[AskedShape, ...],
) -> tuple[Cell, ...]:
    """The cells of the profile, with the asked shapes first; those in `timed` are timed cells.

    The others, and the usual timed cell, become required ones. Without a GPU, a case of a few rows replaces each
    shape, because the interpreter runs one program at a time.
    """
    if profile == "cpu":
        few = [
            replace(
                shape, rows=min(shape.rows, FEW_ROWS, max(1, MOST_INTERPRETED // shape.columns))
            )
            for shape in shapes
        ]
        made = [replace(_cell(op, shape), role="required") for shape in few]
    else:
        made = [
            _cell(op, shape) if shape in timed else replace(_cell(op, shape), role="required")
            for shape in shapes
        ]
    others = [replace(cell, role="required") if cell.role == "bench" else cell for cell in cells]
    known = {cell.name: cell for cell in (*made, *others)}
    return tuple({**known, **{cell.name: cell for cell in made}}.values())


def _cell(op: Op, shape: AskedShape) -> Cell:
    return cell_of(
        op, CellSpec(shape.rows, shape.columns, shape.dtype, "normal", role="bench", label="asked")
    )
