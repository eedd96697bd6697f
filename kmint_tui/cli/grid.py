"""`kmint grid ID|FILE`: a kernel at every shape and dtype of the published grid, losing cells shown like winning ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from kmint_tui.cli.diagnostics import ExitCode
from kmint_tui.cli.framework import Command
from kmint_tui.cli.history_ids import complete_draft
from kmint_tui.cli.operations import complete_operation
from kmint_tui.cli.state import State
from kmint_tui.errors import UsageError, storage_error

if TYPE_CHECKING:
    from kmint_tui.cli.grid_report import MeasuredGrid
    from kmint_tui.cli.kernel_choice import Kernel
    from referee.ops.spec import Cell

ENDINGS = (".svg", ".txt", ".json")


@click.command(cls=Command)
@click.argument("wanted", metavar="ID|FILE", shell_complete=complete_draft)
@click.option(
    "--op", metavar="OP", shell_complete=complete_operation, help="The operation the kernel is for; drafts and saved kernels know it."
)
@click.option("--shape", "shapes", metavar="RxC", multiple=True, help="Only this shape, for example 4096x4096; may be repeated.")
@click.option("--dtype", type=click.Choice(["float16", "bfloat16"]), help="Only this dtype.")
@click.option("--again", is_flag=True, help="Measure every cell anew instead of going on where an earlier run stopped.")
@click.option(
    "--save", "picture", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Write it: FILE.svg, .txt or .json."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.grid/1).")
@click.pass_obj
def grid(
    state: State,
    wanted: str,
    op: str | None,
    shapes: tuple[str, ...],
    dtype: Literal["float16", "bfloat16"] | None,
    again: bool,
    picture: Path | None,
    as_json: bool,
) -> int:
    """Check and time a kernel at every shape and dtype, against the fastest baseline of each; every losing cell is shown.

    \b
      kmint grid 12.3 --save grid.svg
      kmint grid softmax.py --op softmax --shape 4096x4096 --json

    The kernel must first pass every cell of its operation. Cells are kept as they are measured, for this kernel, device and
    versions: the same command goes on where it was interrupted. Building baselines for a shape takes up to a minute the first time.
    Exit code 0 means that the kernel was right at every cell, whatever its speed; 1 that it was rejected or failed at one. The
    result is kept in the history. Needs a GPU.
    """
    from kmint_tui.cli.grid_report import measured, show
    from kmint_tui.cli.kernel_choice import chosen_kernel
    from kmint_tui.cli.measuring import keep, need_gpu

    kernel = chosen_kernel(wanted, op)
    cells = wanted_cells(kernel, shapes, dtype)
    if picture is not None:
        _check(picture)
    need_gpu("a grid")
    found = measured(kernel, cells, state.err, again=again)
    document = found.to_json()
    unkept = keep("grid", kernel, found.environment, found.told()[0], document)
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


def wanted_cells(kernel: Kernel, shapes: tuple[str, ...], dtype: str | None) -> tuple[Cell, ...]:
    """The grid's cells, only those asked for. Raises UsageError when there is no such cell."""
    from referee.grid import GridError, grid_cells, place_of

    try:
        cells = grid_cells(kernel.op)
    except GridError as error:
        raise UsageError(str(error), title="no grid") from error
    known = {f"{rows}x{columns}": None for rows, columns, _ in map(place_of, cells)}
    for shape in shapes:
        if shape not in known:
            raise UsageError(f"the grid of {kernel.op.name} has no shape {shape}", fix=f"its shapes are {', '.join(known)}")
    chosen = tuple(
        cell
        for cell, (rows, columns, of) in ((cell, place_of(cell)) for cell in cells)
        if (not shapes or f"{rows}x{columns}" in shapes) and dtype in (None, of)
    )
    if not chosen:
        raise UsageError(f"the grid of {kernel.op.name} has no {dtype} cells")
    return chosen


def _check(picture: Path) -> None:
    """Refuse at once what could not be written after minutes of measuring."""
    if picture.suffix not in ENDINGS:
        raise UsageError(f"{picture} is none of {', '.join(ENDINGS)}", fix="the ending says what to write")
    if not picture.parent.is_dir():
        raise UsageError(f"{picture.parent} is not a folder", fix="make it first")


def _write(file: Path, found: MeasuredGrid, document: dict[str, Any]) -> None:
    import json

    from kmint_tui import __version__
    from kmint_tui.documents import finite
    from referee.grid_picture import svg, text_map

    if file.suffix == ".svg":
        text = svg(found.points, found.title)
    elif file.suffix == ".txt":
        text = f"{found.title}\n\n{text_map(found.points)}\n"
    else:
        body = {"schema": "kmint.grid/1", "kmint_version": __version__, **document}
        text = json.dumps(finite(body), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise storage_error(file, error) from error
