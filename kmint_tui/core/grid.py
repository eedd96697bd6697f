"""A kernel at every shape and dtype of a grid: how it is measured, and its document."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmint_tui import paths
from kmint_tui.core.kernel_choice import Kernel
from kmint_tui.core.measuring import cache, where
from kmint_tui.documents import compact, rounded
from kmint_tui.errors import UsageError, storage_error

if TYPE_CHECKING:
    from kmint_tui.core.farm.farm import Farm
    from referee.grid import GridPoint
    from referee.ops.spec import Cell as GridCell
    from referee.sandbox.demand import Demand
    from referee.verdict import Rejection

    Points = Callable[[Sequence[GridCell], Path, dict[str, Any]], Iterator[GridPoint]]


@dataclass(frozen=True)
class MeasuredGrid:
    """The grid of a kernel: its points, or the rejection that came before any measurement.

    `earlier` counts the points of an earlier run. `seconds` says where the time went: by the clock
    ("wall", "starting"), then over all cells, and in the GPUs' processes.
    """

    kernel: Kernel
    points: tuple[GridPoint, ...]
    rejection: Rejection | None
    environment: dict[str, Any]
    earlier: int = 0
    seconds: Mapping[str, Any] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        """True where the kernel was correct, and could be timed, at every cell."""
        return self.rejection is None and not any(
            point.decision in ("rejected", "error") for point in self.points
        )

    @property
    def title(self) -> str:
        """One line that names the operation, the kernel and the device."""
        return f"{self.kernel.op.name}: {self.kernel.name} against the fastest baseline on {where(self.environment)}"

    def summary_lines(self) -> list[str]:
        """A summary line, then a line for every losing cell."""
        from referee.grid_picture import summary_lines

        if self.rejection is not None:
            return [f"rejected by {self.rejection.guard}: {self.rejection.reason}"]
        return summary_lines(self.points)

    def to_json(self) -> dict[str, Any]:
        """The content of `kmint.grid/1`."""
        from referee.grid import summarise

        summary = asdict(summarise(self.points))
        return {
            "op": self.kernel.op.name,
            "kernel": self.kernel.to_json(),
            "rejection": asdict(self.rejection) if self.rejection else None,
            "right": self.right,
            "summary": {
                **summary,
                "losing": [
                    [point["rows"], point["columns"], point["dtype"]] for point in summary["losing"]
                ],
            },
            "points": [asdict(point) for point in self.points],
            "earlier": self.earlier,
            "seconds": rounded(self.seconds),
            "environment": self.environment,
        }


def wanted_cells(
    kernel: Kernel, shapes: tuple[str, ...], dtype: str | None
) -> tuple[GridCell, ...]:
    """The cells of the published grid, or those of the given shapes.

    Raises UsageError for a shape or dtype that the operation does not have.
    """
    from kmint_tui.core.shape import asked_shapes
    from referee.grid import GridError, grid_cell, grid_cells, place_of

    try:
        cells = grid_cells(kernel.op)
    except GridError as error:
        raise UsageError(str(error), title="no grid") from error
    usual = tuple(dict.fromkeys(of for _, _, of in map(place_of, cells)))
    if not shapes:
        shapes = tuple(
            dict.fromkeys(f"{rows}x{columns}" for rows, columns, _ in map(place_of, cells))
        )
    found = dict.fromkeys(
        shape
        for of in ((dtype,) if dtype else usual)
        for text in shapes
        for shape in asked_shapes(kernel.op, (text,), of)
    )
    return tuple(grid_cell(kernel.op, shape.rows, shape.columns, shape.dtype) for shape in found)


def measured(
    kernel: Kernel,
    cells: Sequence[GridCell],
    note: Callable[[str], object],
    *,
    again: bool,
    demand: Demand,
    on_point: Callable[[GridPoint], object] | None = None,
    farm: Farm | None = None,
) -> MeasuredGrid:
    """Measure the cells that no earlier run measured, on several devices with a `farm`.

    `note` gets a line for each cell. Raises EnvironmentUnfit, StorageError, and UsageError for a
    record of another grid.
    """
    from kmint_tui.core.farm.grids import AT_ONCE, FarmGrid, KernelRejected
    from kmint_tui.core.farm.here import FarmHere

    note(f"{kernel.op.name} at {len(cells)} cells; baselines of a new shape are built first")
    began = time.monotonic()
    record = _Record(kernel, cells, note, again, on_point)
    with nullcontext(farm) if farm is not None else FarmHere(at_once=AT_ONCE) as devices:
        grid = FarmGrid(devices, kernel, demand)
        environment = grid.environment()
        ready = time.monotonic()
        try:
            found = record.of(environment, grid.points)
        except KernelRejected as rejected:
            found = MeasuredGrid(kernel, (), rejected.rejection, environment)
        seconds = {
            "wall": time.monotonic() - began,
            "starting": ready - began,
            "cells": grid.seconds,
            "worker": devices.spent,
        }
    return replace(found, seconds=seconds)


@dataclass(frozen=True)
class _Record:
    """The record of one grid: cells of earlier runs, and those that are measured now."""

    kernel: Kernel
    cells: Sequence[GridCell]
    note: Callable[[str], object]
    again: bool
    on_point: Callable[[GridPoint], object] | None

    def of(self, environment: dict[str, Any], points: Points) -> MeasuredGrid:
        """The whole grid, in the order of the cells."""
        from referee.grid import GridError, identity_of, place_of, read_record
        from referee.grid_picture import describe

        identity = identity_of(self.kernel.source, self.kernel.op.name, environment)
        record = record_file(identity)
        found: dict[tuple[int, int, str], GridPoint] = {}
        try:
            if self.again:
                record.unlink(missing_ok=True)
            before = {
                point.place for point in read_record(record, identity) if point.decision != "error"
            }
            for point in points(self.cells, record, identity):
                found[point.place] = point
                if self.on_point is not None:
                    self.on_point(point)
                known = " (from an earlier run)" if point.place in before else ""
                self.note(f"{len(found)} of {len(self.cells)}: {describe(point)}{known}")
        except GridError as error:
            raise UsageError(str(error), title="no grid", fix="--again starts a new one") from error
        except OSError as error:
            raise storage_error(record, error) from error
        ordered = tuple(found[place_of(cell)] for cell in self.cells)
        earlier = sum(point.place in before for point in ordered)
        return MeasuredGrid(self.kernel, ordered, None, environment, earlier)


def record_file(identity: dict[str, Any]) -> Path:
    """The file with the finished cells of a grid of this identity. Raises StorageError."""
    import hashlib

    name = hashlib.sha256(compact(identity).encode()).hexdigest()[:32]
    return paths.private_dir(cache() / "grids") / f"{name}.jsonl"
