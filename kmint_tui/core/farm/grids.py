"""The cells of a grid, and the runs of a gate, spread over the devices of a farm."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmint_tui.core.farm.farm import Farm, as_they_end, base
from kmint_tui.core.farm.job import Job, Kind, Place, task_fields
from kmint_tui.core.kernel_choice import Kernel
from kmint_tui.typed import made

if TYPE_CHECKING:
    from referee.gate import GateReport, GateRun
    from referee.grid import GridPoint
    from referee.ops.spec import Cell
    from referee.sandbox.demand import Demand
    from referee.verdict import Rejection


def _job(farm: Farm, kernel: Kernel, demand: Demand, do: Kind, cell: Place | None = None) -> Job:
    return Job(
        do=do,
        sources=(kernel.source,),
        cell=cell,
        demand=demand,
        **task_fields(kernel.task),
        **base(farm),
    )


class FarmGrid:
    """A grid on a farm: one device checks the kernel, then each takes one cell at a time."""

    def __init__(self, farm: Farm, kernel: Kernel, demand: Demand) -> None:
        self._farm, self._kernel, self._demand = farm, kernel, demand

    def check(self) -> tuple[Rejection | None, dict[str, Any]]:
        """The rejection of the kernel or None, and the environment. Raises KmintError."""
        from referee.verdict import Rejection

        job = _job(self._farm, self._kernel, self._demand, "check")
        done = self._farm.submit(job).result().done
        rejection = made(Rejection, done["rejection"], "it") if done["rejection"] else None
        return rejection, {**done["environment"], "devices": self._farm.devices}

    def points(
        self, cells: Sequence[Cell], record: Path, identity: dict[str, Any]
    ) -> Iterator[GridPoint]:
        """Every point, first those of the record, then the others as they come.

        Each goes into the record at once. Raises GridError, OSError and KmintError.
        """
        from referee.grid import place_of, read_record, recorded_grid

        known = {
            point.place for point in read_record(record, identity) if point.decision != "error"
        }
        left = {place_of(cell): cell for cell in cells if place_of(cell) not in known}
        found: dict[tuple[int, int, str], GridPoint] = {}

        def in_turn() -> Iterator[Cell]:
            yield from (cell for cell in cells if place_of(cell) in known)
            for point in self._measured(left.values()):
                found[point.place] = point
                yield left[point.place]

        def measure(cell: Cell) -> GridPoint:
            return found[place_of(cell)]

        yield from recorded_grid(in_turn(), measure, record, identity=identity)

    def _measured(self, cells: Iterable[Cell]) -> Iterator[GridPoint]:
        from referee.grid import GridPoint, place_of

        jobs = (
            _job(
                self._farm,
                self._kernel,
                self._demand,
                "cell",
                made(
                    Place,
                    {
                        "rows": rows,
                        "columns": columns,
                        "dtype": dtype,
                    },
                ),
            )
            for rows, columns, dtype in map(place_of, cells)
        )
        for _, future in as_they_end(self._farm, jobs):
            yield made(GridPoint, future.result().done, "a cell")


def gate_on(
    farm: Farm,
    kernel: Kernel,
    runs: int,
    demand: Demand,
    on_run: Callable[[GateRun], object],
) -> GateReport:
    """A gate whose runs are spread over the devices. Raises KmintError."""
    from referee.gate import GateRun, report

    done: list[GateRun] = []
    environment: dict[str, Any] = {}
    jobs = [_job(farm, kernel, demand, "gate")] * runs
    for _, future in as_they_end(farm, jobs):
        found = future.result().done
        environment = environment or found["environment"]
        for run in found["runs"]:
            done.append(made(GateRun, _with_bounds(run), "a run"))
            on_run(done[-1])
    return replace(report(tuple(done), runs), environment={**environment, "devices": farm.devices})


def _with_bounds(run: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: an interval without bounds came as null."""
    ratio = run["ratio"]
    if ratio is None:
        return run
    bounds = {
        name: missing if ratio[name] is None else ratio[name]
        for name, missing in (("ratio", math.nan), ("low", 0.0), ("high", math.inf))
    }
    return {**run, "ratio": {**ratio, **bounds}}
