"""`kmint book save OP --to DIR`: put a kernel of a book into a project."""

from __future__ import annotations

from pathlib import Path

import click

from kmint_tui.cli.book import device_option
from kmint_tui.cli.framework import RunsCandidates
from kmint_tui.cli.options import OPERATION, complete_operation
from kmint_tui.cli.slow_steps import SlowStepNotice
from kmint_tui.cli.state import State


@click.command(cls=RunsCandidates)
@click.argument(
    "op",
    metavar="OP",
    type=OPERATION,
    shell_complete=complete_operation,
    help="An operation; `kmint book ls` lists those of the book.",
)
@click.option(
    "--to",
    "folder",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to save into.",
)
@click.option(
    "--shape",
    "shapes",
    metavar="RxC",
    multiple=True,
    help="Kernels of these shapes alone; Mx4096 is each number of rows.",
)
@device_option
@click.option(
    "--force", is_flag=True, help="Overwrite files that were edited since they were saved."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.book.save/1).")
@click.pass_obj
def save(
    state: State,
    op: str,
    folder: Path,
    shapes: tuple[str, ...],
    device: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Save the kernel of an operation as one file, with its receipt and its test.

    \b
      kmint book save softmax --to kernels
      kmint book save rmsnorm --shape 32768x1024 --to kernels

    The referee here judges the kernel first, and once more as it will stand; without a GPU nothing
    is timed. The kernel becomes a draft of the history.
    """
    from dataclasses import asdict

    from kmint_tui.core.book.reading import named_book
    from kmint_tui.core.book.saving import entries_of, left_out, save_from_book
    from kmint_tui.core.referee import open_referee
    from kmint_tui.core.save import first_call, left_open

    found, origins = named_book(device)
    entries = entries_of(found, op, shapes, origins)
    with (
        open_referee(state.demand(), state.err.note) as referee,
        SlowStepNotice(state.err) as notice,
    ):
        notice.doing("judging the kernels of the book")
        done = save_from_book(found, entries, referee, folder, force=force, tell=notice.doing)
    saved = done.saved
    if as_json:
        content = {
            "op": op,
            "device": found.device,
            "files": [str(path) for path in saved.files],
            "holds": [asdict(one.place) for one in done.held],
            "left_out": [asdict(one.place) for one in done.left_out],
            "verdict": saved.verdict.to_json(),
        }
        state.out.document("kmint.book.save/1", content)
        return
    for path in saved.files:
        state.out.text(str(path))
    if note := left_out(done):
        state.err.note(note)
    if warning := left_open(saved):
        state.err.note(warning)
    if hint := first_call(saved, None):
        state.err.hint(hint)
