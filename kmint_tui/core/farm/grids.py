"""The cells of a grid, and the runs of a gate, spread over the devices of a farm."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmint_tui.core.farm.farm import Answer, Farm, as_they_end, base
from kmint_tui.core.farm.job import Job, Kind, Place, task_fields
from kmint_tui.core.kernel_choice import Kernel
from kmint_tui.typed import made
from referee.timing.spent import added

if TYPE_CHECKING:
    from referee.gate import GateReport, GateRun
    from referee.grid import GridPoint
    from referee.ops.spec import Cell
    from referee.sandbox.demand import Demand
    from referee.verdict import Rejection

AT_ONCE = 2
"""Cells at a time on each device: the kernel is compiled for one while another one is timed."""


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
    """A grid on a farm. One device checks the kernel, and meanwhile cells are measured.

    `seconds` has the time of each part of the cells so far, over all devices together.
    """

    def __init__(self, farm: Farm, kernel: Kernel, demand: Demand) -> None:
        self._farm, self._kernel, self._demand = farm, kernel, demand
        self.seconds: dict[str, float] = {}

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

        def in_turn() -> Iterator[Cell]:
            earlier = [cell for cell in cells if place_of(cell) in known]
            for point in self._measured(left.values()):
                yield from earlier
                earlier = []
                found[point.place] = point
                yield left[point.place]
            yield from earlier

        def measure(cell: Cell) -> GridPoint:
            return found[place_of(cell)]

        yield from recorded_grid(in_turn(), measure, record, identity=identity)

    def _measured(self, cells: Iterable[Cell]) -> Iterator[GridPoint]:
        """The cells as they are measured. None comes, and none fails, before the check has passed."""
        from referee.grid import GridPoint

        held: list[Future[Answer]] | None = []
        for job, future in as_they_end(self._farm, self._jobs(cells)):
            if job.do == "check":
                _pass(future.result())
                ended, held = held or [], None
            elif held is not None:
                held.append(future)
                continue
            else:
                ended = [future]
            for one in ended:
                done = one.result().done
                self.seconds = added(self.seconds, done["seconds"])
                yield made(GridPoint, done["point"], "a cell")

    def _jobs(self, cells: Iterable[Cell]) -> Iterator[Job]:
        """The check, then the cells."""
        from referee.grid import place_of

        yield _job(self._farm, self._kernel, self._demand, "check")
        for rows, columns, dtype in map(place_of, cells):
            place = made(Place, {"rows": rows, "columns": columns, "dtype": dtype})
            yield _job(self._farm, self._kernel, self._demand, "cell", place)


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
