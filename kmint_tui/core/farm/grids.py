"""The cells of a grid, and the runs of a gate, spread over the devices of a farm."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmint_tui.core.farm.farm import Answer, Farm, as_they_end, base
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


class KernelRejected(Exception):
    """The check of a grid's kernel ended with this rejection, so no cell counts."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.reason)
        self.rejection = rejection


class FarmGrid:
    """A grid on a farm. One device checks the kernel, and meanwhile the others take cells."""

    def __init__(self, farm: Farm, kernel: Kernel, demand: Demand) -> None:
        self._farm, self._kernel, self._demand = farm, kernel, demand

    def environment(self) -> dict[str, Any]:
        """The environment of the first device that is ready; all devices begin. Raises KmintError."""
        job = _job(self._farm, self._kernel, self._demand, "begin")
        begun = [self._farm.submit(job) for _ in range(self._farm.devices)]
        done = next(as_completed(begun)).result().done
        return {**done["environment"], "devices": self._farm.devices}

    def points(
        self, cells: Sequence[Cell], record: Path, identity: dict[str, Any]
    ) -> Iterator[GridPoint]:
        """Every point, first those of the record, then the others as they come.

        No point comes, and none goes into the record, before the kernel has passed its check. Each
        goes into the record at once. Raises KernelRejected, GridError, OSError and KmintError.
        """
        from referee.grid import place_of, read_record, recorded_grid

        known = {
            point.place for point in read_record(record, identity) if point.decision != "error"
        }
        left = {place_of(cell): cell for cell in cells if place_of(cell) not in known}
        found: dict[tuple[int, int, str], GridPoint] = {}
        check = self._farm.submit(_job(self._farm, self._kernel, self._demand, "check"))

        def in_turn() -> Iterator[Cell]:
            measured = self._measured(left.values())
            # The first point begins the work on cells, while the check runs.
            begun = list(islice(measured, 1))
            _pass(check.result())
            yield from (cell for cell in cells if place_of(cell) in known)
            for point in chain(begun, measured):
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


def _pass(checked: Answer) -> None:
    """Raise KernelRejected for the answer to a check that ended with a rejection."""
    from referee.verdict import Rejection

    if checked.done["rejection"]:
        raise KernelRejected(made(Rejection, checked.done["rejection"], "the rejection"))


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
