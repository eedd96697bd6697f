"""Measures a kernel's grid for the interface, cell by cell, as `kmint grid` does; what is measured is kept in the history."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kmint_tui.cli.diagnostics import Diagnostics
from kmint_tui.cli.grid import wanted_cells
from kmint_tui.cli.grid_report import measured
from kmint_tui.cli.kernel_choice import chosen_kernel
from kmint_tui.cli.measuring import keep, need_gpu
from kmint_tui.workbench.grid_report import GridReport
from kmint_tui.workbench.jobs import Job
from referee.grid import GridPoint, place_of
from referee.ops.spec import Cell


@dataclass(frozen=True)
class Places:
    """The cells of a grid: its shapes and its dtypes."""

    shapes: tuple[tuple[int, int], ...]
    dtypes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.shapes) * len(self.dtypes)


def places_of(cells: Iterable[Cell]) -> Places:
    """Where these cells are."""
    places = [place_of(cell) for cell in cells]
    shapes = tuple(dict.fromkeys((rows, columns) for rows, columns, _ in places))
    return Places(shapes, tuple(dict.fromkeys(dtype for _, _, dtype in places)))


def measure(wanted: str, job: Job, began: Callable[[GridReport, Places], object], on_point: Callable[[GridPoint], object]) -> str:
    """Measure the grid of a draft or file; returns what came of it in one line.

    `began` is called when the kernel is known, `on_point` for every cell. Raises UsageError, EnvironmentUnfit, StorageError, and
    Cancelled after the cell under way; finished cells are kept and not measured again.
    """
    kernel = chosen_kernel(wanted, None)
    cells = wanted_cells(kernel, (), None)
    need_gpu("a grid")
    began(GridReport(kernel.name, kernel.op.name, "", ()), places_of(cells))

    def after(point: GridPoint) -> None:
        on_point(point)
        job.go_on()

    job.go_on()
    found = measured(kernel, cells, Diagnostics(quiet=True), again=False, on_point=after)
    result = found.told()[0]
    unkept = keep("grid", kernel, found.environment, result, found.to_json())
    if unkept is not None:
        raise unkept
    return result
