"""The table of a saved file that chooses by shape, and the code that reads it.

The code is kmint's own and stands outside the judged parts. Each kernel was judged at every size and
dtype that the file accepts, so a choice costs time at most, never a wrong answer. It compares sizes
with constants alone, which `torch.compile` turns into a few guards.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any, Literal

from referee.plans.dtypes import ITEMSIZE

Outside = Literal["nearest", "reference"]
"""The answer for a dtype without a row: a kernel that was judged, or PyTorch."""

RULE = "A call takes the nearest row: first its dtype, then its columns, then its rows, on a log scale."
_OUTSIDE = {
    "nearest": "Another dtype takes the rows of the dtypes of its size in bytes, else all rows.",
    "reference": "Another dtype takes reference().",
}

_WRITTEN = re.compile(r"^ +_Shape\((\d+), (\d+), torch\.(\w+), (_run_\d+), [\d.]+\),$", re.M)
"""A row of the table as `table` writes it."""

_SHAPE = '''class _Shape(NamedTuple):
    """Where a kernel was the fastest; ratio is the time of the fastest baseline over its own."""

    rows: int
    columns: int
    dtype: torch.dtype
    kernel: Callable[..., Tensor]
    ratio: float


'''
_CODE = '''

def _shapes_of(dtype: torch.dtype) -> list[_Shape]:
    """The rows of SHAPES that a dtype may take, by columns and rows."""
{found}
    return sorted(found, key=lambda shape: (shape.columns, shape.rows))


_BY_DTYPE = {{dtype: _shapes_of(dtype) for dtype in DTYPES}}


def _kernel_for(rows: int, columns: int, dtype: torch.dtype) -> Callable[..., Tensor]:
    """The kernel of the nearest row of SHAPES."""
{missing}    found, *others = _BY_DTYPE[dtype]
    # They ascend; beyond the geometric mean of two sizes the larger one is nearer.
    for shape in others:
        if shape.columns == found.columns:
            found = shape if rows > math.isqrt(shape.rows * found.rows) else found
        elif columns > math.isqrt(shape.columns * found.columns):
            found = shape
    return found.kernel
'''
_SAME = "    found = [shape for shape in SHAPES if shape.dtype == dtype]"
_WIDE = "    wide = [shape for shape in SHAPES if shape.dtype.itemsize == dtype.itemsize]"
_NEAREST = f"{_SAME}\n{_WIDE}\n    found = found or wide or list(SHAPES)"
_MISSING = """    if not _BY_DTYPE[dtype]:
        return reference
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the table: a shape, the entry of its kernel, and how that was measured there.

    `ratio` is the time of the fastest baseline `bar` over the kernel's own, with a 95 % interval.
    `where` is the device and the versions of that measurement.
    """

    rows: int
    columns: int
    dtype: str
    entry: str
    draft: str
    ratio: float
    low: float | None
    high: float | None
    bar: str
    microseconds: float
    decision: str
    where: str

    @property
    def name(self) -> str:
        """The shape as `--shape` takes it."""
        return f"{self.rows}x{self.columns}:{self.dtype}"

    def to_json(self) -> dict[str, Any]:
        """For the receipt."""
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The rows of a table, and what a dtype outside of them gets."""

    rows: tuple[Row, ...]
    outside: Outside

    @property
    def entries(self) -> tuple[str, ...]:
        """The entries of the kernels, each once, in the order of their numbers."""
        return tuple(sorted({row.entry for row in self.rows}, key=_number))


def imports() -> list[str]:
    """The imports that the table and its code need."""
    return [
        "import math",
        "from collections.abc import Callable",
        "from typing import NamedTuple",
    ]


def table(choice: Choice) -> str:
    """`SHAPES` with its rule, and the function `_kernel_for`."""
    lines = [
        "# Measured shapes: rows, columns, dtype, the fastest kernel there, and its ratio to the",
        "# fastest baseline of PyTorch.",
        f"# {RULE}",
        f"# {_OUTSIDE[choice.outside]}",
        "SHAPES = (",
        *(
            f"    _Shape({row.rows}, {row.columns}, torch.{row.dtype}, {row.entry}, {row.ratio:.3f}),"
            for row in in_order(choice.rows)
        ),
        ")",
    ]
    nearest = choice.outside == "nearest"
    code = _CODE.format(found=_NEAREST if nearest else _SAME, missing="" if nearest else _MISSING)
    return _SHAPE + "\n".join(lines) + "\n" + code


def entry_for(text: str, rows: int, columns: int, dtype: str) -> str | None:
    """The entry that a saved file with this text takes; None where it takes PyTorch."""
    written = [(int(one[1]), int(one[2]), one[3], one[4]) for one in _WRITTEN.finditer(text)]
    same = [one for one in written if one[2] == dtype]
    if not same and _MISSING.splitlines()[0] not in text:
        size = ITEMSIZE.get(dtype)
        same = [one for one in written if ITEMSIZE.get(one[2]) == size] or written
    if not same:
        return None
    found, *others = sorted(same, key=lambda one: (one[1], one[0]))
    for one in others:
        if one[1] == found[1]:
            found = one if rows > isqrt(one[0] * found[0]) else found
        elif columns > isqrt(one[1] * found[1]):
            found = one
    return found[3]


def in_order(rows: Sequence[Row]) -> list[Row]:
    """The rows by dtype, columns and rows, in which a reader looks for one."""
    return sorted(rows, key=lambda row: (row.dtype, row.columns, row.rows))


def sentence(choice: Choice) -> str:
    """The choice in words, for the docstring of the file."""
    drafts = dict(sorted({row.entry: row.draft for row in choice.rows}.items()))
    names = ", ".join(f"{entry} is draft {draft}" for entry, draft in drafts.items())
    return (
        f"SHAPES below says which kernel a call takes: {names}. {RULE} {_OUTSIDE[choice.outside]}"
    )


def _number(entry: str) -> int:
    return int(entry.rpartition("_")[2])
