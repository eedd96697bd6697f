"""A measured grid: how it is measured, its document, and the heat map in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmint_tui import paths
from kmint_tui.cli.diagnostics import Diagnostics
from kmint_tui.cli.kernel_choice import Kernel
from kmint_tui.cli.measuring import cache, referee_failures, where
from kmint_tui.cli.output import Cell, Output, Table
from kmint_tui.documents import compact
from kmint_tui.errors import UsageError, storage_error

if TYPE_CHECKING:
    from referee.grid import GridPoint
    from referee.ops.spec import Cell as GridCell
    from referee.verdict import Rejection

STYLES = {"win": "green", "tie": "cyan", "unsure": "yellow", "loss": "red", "rejected": "red", "error": "red"}
SEED_BITS = 63


@dataclass(frozen=True)
class MeasuredGrid:
    """A kernel's grid: its points, or the rejection that kept it from being measured. `earlier` points are from an earlier run."""

    kernel: Kernel
    points: tuple[GridPoint, ...]
    rejection: Rejection | None
    environment: dict[str, Any]
    earlier: int = 0

    @property
    def right(self) -> bool:
        """The kernel was right, and could be timed, at every cell."""
        return self.rejection is None and not any(point.decision in ("rejected", "error") for point in self.points)

    @property
    def title(self) -> str:
        """What the picture is of."""
        return f"{self.kernel.op.name}: {self.kernel.name} against the fastest baseline on {where(self.environment)}"

    def told(self) -> list[str]:
        """The sum of it in a line, then a line for every losing cell."""
        from referee.grid_picture import told

        if self.rejection is not None:
            return [f"rejected by {self.rejection.guard}: {self.rejection.reason}"]
        return told(self.points)

    def to_json(self) -> dict[str, Any]:
        """The content of `kmint.grid/1`."""
        from referee.grid import summarise

        summary = asdict(summarise(self.points))
        return {
            "op": self.kernel.op.name,
            "kernel": self.kernel.to_json(),
            "rejection": asdict(self.rejection) if self.rejection else None,
            "right": self.right,
            "summary": {**summary, "losing": [[point["rows"], point["columns"], point["dtype"]] for point in summary["losing"]]},
            "points": [asdict(point) for point in self.points],
            "earlier": self.earlier,
            "environment": self.environment,
        }


def measured(
    kernel: Kernel, cells: Sequence[GridCell], err: Diagnostics, *, again: bool, on_point: Callable[[GridPoint], object] | None = None
) -> MeasuredGrid:
    """Measure the cells that no earlier run did. Raises EnvironmentUnfit, StorageError, or UsageError for a foreign record.

    `on_point` is told of every cell, and may raise to end the measuring: finished cells are kept.
    """
    import secrets

    from referee.device.candidate import Candidate
    from referee.device.gpu import Replayer
    from referee.grid import GridError, identity_of, read_record, run_grid
    from referee.grid_picture import describe
    from referee.sandbox.workers import Workers
    from referee.subject import Subject
    from referee.verdict import Rejection

    with referee_failures(), Workers() as workers, Replayer(cache=cache() / "baselines") as replayer:
        candidate = Candidate(kernel.source, Subject(kernel.task), workers, cache=cache() / "kernels")
        environment = replayer.environment()
        err.note(f"{kernel.op.name} at {len(cells)} cells; baselines of a new shape are built first")
        seed = secrets.randbits(SEED_BITS)
        ready = candidate.everywhere(replayer, seed)
        rejection = ready if isinstance(ready, Rejection) else replayer.check(ready, seed=seed).rejection
        if rejection is not None:
            return MeasuredGrid(kernel, (), rejection, environment)
        identity = identity_of(kernel.source, kernel.op.name, environment)
        record = record_file(identity)
        points: list[GridPoint] = []
        try:
            if again:
                record.unlink(missing_ok=True)
            before = {point.place for point in read_record(record, identity) if point.decision != "error"}
            for point in run_grid(
                cells, lambda cell: candidate.at(replayer, cell, secrets.randbits(SEED_BITS)), replayer, record, identity=identity
            ):
                points.append(point)
                if on_point is not None:
                    on_point(point)
                known = " (from an earlier run)" if point.place in before else ""
                err.note(f"{len(points)} of {len(cells)}: {describe(point)}{known}")
        except GridError as error:
            raise UsageError(str(error), title="no grid", fix="--again starts a new one") from error
        except OSError as error:
            raise storage_error(record, error) from error
        return MeasuredGrid(kernel, tuple(points), None, environment, sum(point.place in before for point in points))


def record_file(identity: dict[str, Any]) -> Path:
    """Where the finished cells of a grid of this identity are kept. Raises StorageError."""
    import hashlib

    name = hashlib.sha256(compact(identity).encode()).hexdigest()[:32]
    return paths.private_dir(cache() / "grids") / f"{name}.jsonl"


def show(out: Output, found: MeasuredGrid) -> None:
    """The heat map and what it comes to."""
    from referee.grid_picture import cell_text

    out.heading(found.title)
    if found.points:
        table = {point.place: point for point in found.points}
        dtypes = tuple(dict.fromkeys(point.dtype for point in found.points))
        rows: list[tuple[Cell | str, ...]] = []
        for shape in dict.fromkeys((point.rows, point.columns) for point in found.points):
            at = [table.get((*shape, dtype)) for dtype in dtypes]
            rows.append((f"{shape[0]} x {shape[1]}", *(Cell(cell_text(point), STYLES[point.decision] if point else "dim") for point in at)))
        out.table(Table(("rows x columns", *dtypes), rows, frozenset(dtypes)))
        out.text("")
    for line in found.told():
        out.text(line)
