"""Measures the grid of a kernel for the application, cell by cell, as `kmint grid` does.

The result goes into the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kmint_tui.core.grid import measured, wanted_cells
from kmint_tui.core.grid_report import GridReport
from kmint_tui.core.jobs import Job
from kmint_tui.core.kernel_choice import chosen_kernel
from kmint_tui.core.measuring import keep, need_gpu
from kmint_tui.core.referee import demand
from referee.grid import GridPoint, place_of
from referee.ops.spec import Cell


@dataclass(frozen=True)
class Places:
    """The shapes (rows, columns) and the dtypes of a grid."""

    shapes: tuple[tuple[int, int], ...]
    dtypes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.shapes) * len(self.dtypes)


def places_of(cells: Iterable[Cell]) -> Places:
    """The shapes and dtypes of these cells."""
    places = [place_of(cell) for cell in cells]
    shapes = tuple(dict.fromkeys((rows, columns) for rows, columns, _ in places))
    return Places(shapes, tuple(dict.fromkeys(dtype for _, _, dtype in places)))


def measure(
    wanted: str,
    job: Job,
    began: Callable[[GridReport, Places], object],
    on_point: Callable[[GridPoint], object],
) -> str:
    """Measure the grid of a draft or file; returns the result in one line.

    `began` gets the kernel and its cells, `on_point` every measured cell. Raises UsageError,
    EnvironmentUnfit, StorageError, and Cancelled after the current cell. Finished cells are kept
    and not measured again.
    """
    kernel = chosen_kernel(wanted, None)
    cells = wanted_cells(kernel, (), None)
    need_gpu("a grid")
    began(GridReport(kernel.name, kernel.op.name, "", ()), places_of(cells))

    def after(point: GridPoint) -> None:
        on_point(point)
        job.go_on()

    job.go_on()
    found = measured(kernel, cells, lambda _: None, again=False, demand=demand(), on_point=after)
    result = found.summary_lines()[0]
    unkept = keep("grid", kernel, found.environment, result, found.to_json())
    if unkept is not None:
        raise unkept
    return result
