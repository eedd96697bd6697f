"""The shape x dtype grid: checks and times one candidate at many shapes and shows every loss.

Finished cells go to a JSON-lines file at once, so that an interrupted grid continues where it
stopped. A record of another kernel or machine is refused. Cells that failed for a reason of the
machine are measured again. Torch-free.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from referee.gpu.jobs import CompiledCandidate
from referee.gpu.replayer import Replayer, ReplayerError
from referee.ops.cell_spec import CellSpec
from referee.ops.cells import cell_of
from referee.ops.signatures import KINDS, ROPE_KINDS
from referee.ops.spec import Cell, Dtype, Op
from referee.timing.measurement import CANDIDATE, Timing, TimingOptions
from referee.timing.spent import Spent
from referee.timing.stats import geometric_mean
from referee.verdict import Rejection
from referee.versions import compiler_name

SCHEMA = "kmint.grid-record/1"
MATRIX_SHAPES = (
    (1024, 4096),
    (4096, 4096),
    (8192, 4096),
    (4096, 8192),
    (16384, 2048),
    (256, 16384),
)
ROPE_SHAPES = ((8192, 128), (32768, 128), (65536, 64), (16384, 256))
DTYPES: tuple[Dtype, ...] = ("float16", "bfloat16")
SEED_BITS = 63


class GridError(ValueError):
    """The record cannot be continued, or the operation has no grid."""


@dataclass(frozen=True)
class GridPoint:
    """One cell of the grid. Without a time, `decision` is "rejected" or "error" with a `reason`."""

    rows: int
    columns: int
    dtype: str
    decision: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    bar: str | None = None
    candidate_us: float | None = None
    bar_us: float | None = None
    floor_share: float | None = None
    reason: str = ""
    seed: int = 0

    @property
    def place(self) -> tuple[int, int, str]:
        """Rows, columns and dtype."""
        return self.rows, self.columns, self.dtype

    @property
    def loses(self) -> bool:
        """Whether the kernel is slower than the fastest baseline, rejected, or failed."""
        return self.decision in ("loss", "rejected", "error")


@dataclass(frozen=True)
class GridSummary:
    """All cells: the geometric mean of the `timed` ratios, the share of wins, all losing cells."""

    cells: int
    timed: int
    geomean: float | None
    win_rate: float
    counts: dict[str, int]
    losing: tuple[GridPoint, ...]


def grid_cells(op: Op) -> tuple[Cell, ...]:
    """The cells of the grid, all timed. Raises GridError for an operation outside the catalogue."""
    if op.kind not in KINDS:
        raise GridError(f"{op.name}: only operations of the catalogue have a shape grid")
    shapes = ROPE_SHAPES if op.kind in ROPE_KINDS else MATRIX_SHAPES
    dtypes = ("float16",) if op.kind == "dequant" else DTYPES
    return tuple(
        grid_cell(op, rows, columns, dtype) for dtype in dtypes for rows, columns in shapes
    )


def place_of(cell: Cell) -> tuple[int, int, str]:
    """Rows, columns and dtype of a grid's cell."""
    rows, columns = cell.inputs[0].shape
    return rows, columns, cell.outputs[0].dtype


def identity_of(source: str, op: str, environment: Mapping[str, Any]) -> dict[str, Any]:
    """The identity of a record: the kernel's text, the operation, the device and its versions."""
    here = {
        name: environment.get(name)
        for name in ("device", "arch", "cuda", "cuda_driver", "torch", "python")
    }
    here["triton"] = compiler_name(environment)
    return {
        "source_sha256": hashlib.sha256(source.encode("utf-8", "replace")).hexdigest(),
        "op": op,
        **here,
    }


def run_grid(
    cells: Sequence[Cell],
    prepare: Callable[[Cell], CompiledCandidate | Rejection],
    replayer: Replayer,
    record: Path,
    *,
    identity: dict[str, Any],
    options: TimingOptions | None = None,
) -> Generator[GridPoint, None, None]:
    """Yield every point in order; `record` supplies the points measured before.

    `prepare` traces and compiles a cell. `identity` is that of `identity_of`. Raises GridError and
    OSError.
    """

    def measure(cell: Cell) -> GridPoint:
        return measured_point(cell, prepare, replayer, options)

    yield from recorded_grid(cells, measure, record, identity=identity)


def recorded_grid(
    cells: Iterable[Cell],
    measure: Callable[[Cell], GridPoint],
    record: Path,
    *,
    identity: dict[str, Any],
) -> Generator[GridPoint, None, None]:
    """As `run_grid`, by any measuring of a cell that `record` lacks."""
    known = {
        point.place: point for point in read_record(record, identity) if point.decision != "error"
    }
    with open(record, "a", encoding="utf-8") as file:
        if file.tell() == 0:
            _append(file.fileno(), {"schema": SCHEMA, "identity": identity})
        for cell in cells:
            place = place_of(cell)
            if place not in known:
                known[place] = measure(cell)
                _append(file.fileno(), asdict(known[place]))
            yield known[place]


def read_record(record: Path, identity: dict[str, Any]) -> list[GridPoint]:
    """The finished points of a record. A half-written last line is cut off.

    Raises GridError if the record has another identity.
    """
    if not record.exists():
        return []
    text = record.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if whole != text:
        os.truncate(record, len(whole))
    lines = whole.splitlines()
    if not lines:
        return []
    try:
        head, points = json.loads(lines[0]), [json.loads(line) for line in lines[1:]]
        known = head["schema"] == SCHEMA and head["identity"] == identity
        if known and all(map(_is_point, points)):
            return [GridPoint(**point) for point in points]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise GridError(f"{record} is not a grid record: {error}") from error
    raise GridError(
        f"{record} is the record of another kernel, machine or version: move it away to start a new one"
    )


_TYPES = {
    "int": (int,),
    "str": (str,),
    "float | None": (float, int, type(None)),
    "str | None": (str, type(None)),
}


def _is_point(data: Any) -> bool:
    kinds = {field.name: _TYPES[str(field.type)] for field in fields(GridPoint)}
    if not isinstance(data, dict) or data.keys() != kinds.keys():
        return False
    fits = all(isinstance(data[name], kind) for name, kind in kinds.items())
    return fits and not any(isinstance(value, bool) for value in data.values())


def summarise(points: Sequence[GridPoint]) -> GridSummary:
    """The summary of these points."""
    counts: dict[str, int] = {}
    for point in points:
        counts[point.decision] = counts.get(point.decision, 0) + 1
    ratios = [point.ratio for point in points if point.ratio is not None]
    wins = counts.get("win", 0) / len(points) if points else 0.0
    losing = tuple(point for point in points if point.loses)
    return GridSummary(
        len(points), len(ratios), geometric_mean(ratios) if ratios else None, wins, counts, losing
    )


def measured_point(
    cell: Cell,
    prepare: Callable[[Cell], CompiledCandidate | Rejection],
    replayer: Replayer,
    options: TimingOptions | None = None,
    spent: Spent | None = None,
) -> GridPoint:
    """One cell, checked and timed. A failure of the referee gives the decision "error".

    `spent` gets the seconds of each part, with the wait for a busy worker.
    """
    rows, columns, dtype = place_of(cell)
    seed, spent = secrets.randbits(SEED_BITS), spent or Spent()
    try:
        with spent.during("preparing"):
            prepared = prepare(cell)
        found: Rejection | Timing | None = None
        if isinstance(prepared, Rejection):
            found = prepared
        else:
            with spent.during("checking"):
                found = replayer.check(prepared, seed=seed).rejection
            if found is None:
                with spent.during("timing"):
                    found = replayer.time(prepared, seed=seed, options=options)
    except ReplayerError as error:
        reason = str(error).splitlines()[0]
        return GridPoint(rows, columns, dtype, "error", reason=reason, seed=seed)
    if isinstance(found, Rejection):
        reason = f"{found.guard}: {found.reason}"
        return GridPoint(rows, columns, dtype, "rejected", reason=reason, seed=seed)
    ratio, mine, bar = found.ratio, found.device.get(CANDIDATE), found.device.get(found.bar or "")
    return GridPoint(
        rows,
        columns,
        dtype,
        found.decision,
        ratio=ratio.ratio if ratio else None,
        low=ratio.low if ratio else None,
        high=ratio.high if ratio else None,
        bar=found.bar,
        candidate_us=mine.median if mine else None,
        bar_us=bar.median if bar else None,
        floor_share=found.floor_share,
        reason=found.reason,
        seed=seed,
    )


def grid_cell(op: Op, rows: int, columns: int, dtype: Dtype) -> Cell:
    """One timed cell of any shape."""
    cell = cell_of(op, CellSpec(rows, columns, dtype, "normal", role="bench"))
    return replace(cell, name=f"grid-{rows}x{columns}-{dtype}")


def _append(fd: int, data: dict[str, Any]) -> None:
    """Append one line in one write and sync it, before the next cell starts."""
    os.write(fd, (json.dumps(data) + "\n").encode())
    os.fsync(fd)
