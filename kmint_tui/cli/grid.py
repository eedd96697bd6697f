"""`kmint grid ID|FILE`: a kernel at every shape and dtype of the published grid, losing cells shown
like winning ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmint_tui.cli.framework import RunsCandidates
from kmint_tui.cli.history_ids import complete_draft
from kmint_tui.cli.options import OPERATION, complete_operation, farm_options
from kmint_tui.cli.state import State
from kmint_tui.cli.streams import Cell, Output, Table
from kmint_tui.core.exit_codes import ExitCode
from kmint_tui.core.grid import MeasuredGrid
from kmint_tui.errors import UsageError, storage_error

if TYPE_CHECKING:
    from kmint_tui.core.farm.opening import FarmAsked
    from kmint_tui.core.grid import MeasuredGrid

ENDINGS = (".svg", ".txt", ".json")


@click.command(cls=RunsCandidates)
@click.argument(
    "wanted",
    metavar="ID|FILE",
    shell_complete=complete_draft,
    help="A draft such as 12.3 (`kmint history` lists the sessions), or a kernel file.",
)
@click.option(
    "--op",
    metavar="OP",
    type=OPERATION,
    shell_complete=complete_operation,
    help="The operation the kernel is for; drafts and saved kernels know it.",
)
@click.option(
    "--shape",
    "shapes",
    metavar="RxC",
    multiple=True,
    help="This shape alone, as in 32768x1024 or Mx1024:fp32; may be repeated.  [default: the published grid]",
)
@click.option(
    "--dtype", metavar="DTYPE", help="fp16, bf16 or fp32 alone.  [default: fp16 and bf16]"
)
@click.option(
    "--again",
    is_flag=True,
    help="Measure every cell anew instead of going on where an earlier run stopped.",
)
@click.option(
    "--save",
    "picture",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write it: FILE.svg, .txt or .json.",
)
@farm_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.grid/1).")
@click.pass_obj
def grid(
    state: State,
    wanted: str,
    op: str | None,
    shapes: tuple[str, ...],
    dtype: str | None,
    again: bool,
    picture: Path | None,
    farm: FarmAsked,
    as_json: bool,
) -> int:
    """Check and time a kernel at every shape and dtype, against the fastest baseline of each; every
    losing cell is shown.

    \b
      kmint grid 12.3 --save grid.svg
      kmint grid softmax.py --op softmax --shape 4096x4096 --json

    The kernel must first pass every cell of its operation. Cells are kept as they are measured, for
    this kernel, device and versions: the same command goes on where it was interrupted. Building
    baselines for a shape takes up to a minute the first time. With --gpus or --ray each device times
    one cell at a time. Exit code 0 means that the kernel was
    right at every cell, whatever its speed; 1 that it was rejected or failed at one. The result is
    kept in the history. Needs a GPU.
    """
    from kmint_tui.core.farm.grids import AT_ONCE
    from kmint_tui.core.farm.opening import open_gpus
    from kmint_tui.core.grid import measured, wanted_cells
    from kmint_tui.core.kernel_choice import chosen_kernel
    from kmint_tui.core.measuring import keep

    kernel = chosen_kernel(wanted, op)
    cells = wanted_cells(kernel, shapes, dtype)
    if picture is not None:
        _check(picture)
    with open_gpus(farm, "a grid", each=AT_ONCE) as devices:
        found = measured(
            kernel, cells, state.err.note, again=again, demand=state.demand(), farm=devices
        )
    document = found.to_json()
    unkept = keep("grid", kernel, found.environment, found.summary_lines()[0], document)
    if picture is not None:
        _write(picture, found, document)
        state.err.note(f"wrote {picture}")
    if as_json:
        state.out.document("kmint.grid/1", document)
    else:
        show(state.out, found)
    if unkept is not None:
        raise unkept
    return ExitCode.DONE if found.right else ExitCode.NOTHING_PASSED


def _check(picture: Path) -> None:
    """Refuse a file that could not be written, before minutes of measuring."""
    if picture.suffix not in ENDINGS:
        raise UsageError(
            f"{picture} is none of {', '.join(ENDINGS)}", fix="the ending says what to write"
        )
    if not picture.parent.is_dir():
        raise UsageError(f"{picture.parent} is not a folder", fix="make it first")


def _write(file: Path, found: MeasuredGrid, document: dict[str, Any]) -> None:
    import json

    from kmint_tui import __version__
    from kmint_tui.documents import finite
    from kmint_tui.escapes import visible, visible_json
    from referee.grid_picture import svg, text_map

    if file.suffix == ".svg":
        text = visible(svg(found.points, found.title))
    elif file.suffix == ".txt":
        text = visible(f"{found.title}\n\n{text_map(found.points)}\n")
    else:
        body = {"schema": "kmint.grid/1", "kmint_version": __version__, **document}
        text = (
            visible_json(json.dumps(finite(body), indent=2, ensure_ascii=False, allow_nan=False))
            + "\n"
        )
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise storage_error(file, error) from error


STYLES = {
    "win": "green",
    "tie": "cyan",
    "unsure": "yellow",
    "loss": "red",
    "rejected": "red",
    "error": "red",
}


def show(out: Output, found: MeasuredGrid) -> None:
    """Write the heat map and its summary."""
    from referee.grid_picture import cell_text

    out.heading(found.title)
    if found.points:
        table = {point.place: point for point in found.points}
        dtypes = tuple(dict.fromkeys(point.dtype for point in found.points))
        rows: list[tuple[Cell | str, ...]] = []
        for shape in dict.fromkeys((point.rows, point.columns) for point in found.points):
            at = [table.get((*shape, dtype)) for dtype in dtypes]
            rows.append(
                (
                    f"{shape[0]} x {shape[1]}",
                    *(
                        Cell(cell_text(point), STYLES[point.decision] if point else "dim")
                        for point in at
                    ),
                )
            )
        out.table(Table(("rows x columns", *dtypes), rows, frozenset(dtypes)))
        out.text("")
    for line in found.summary_lines():
        out.text(line)
