"""`kmint save ID --to DIR`: put a kernel that passed into a project."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from kmint_tui import paths
from kmint_tui.cli.framework import RunsCandidates
from kmint_tui.cli.history_ids import complete_draft
from kmint_tui.cli.options import reference_option, shapes_for
from kmint_tui.cli.slow_steps import SlowStepNotice
from kmint_tui.cli.state import State
from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from kmint_tui.save.choosing import Row
    from referee.reference.asked import Asked


@click.command(cls=RunsCandidates)
@click.argument(
    "wanted",
    metavar="ID...",
    nargs=-1,
    required=True,
    shell_complete=complete_draft,
    help="A draft that passed, such as 12.3; several of one operation make a file that chooses by shape.",
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
    "--format",
    "form",
    type=click.Choice(["file", "hf-kernel"]),
    default="file",
    show_default=True,
    help="One file with receipt and test, or a package for Hugging Face `kernels`.",
)
@shapes_for("at which the file chooses a kernel", "those at which all drafts were timed")
@click.option(
    "--outside",
    type=click.Choice(["nearest", "reference"]),
    help="What a dtype without a shape gets: the nearest kernel, or PyTorch.  [default: nearest]",
)
@reference_option()
@click.option(
    "--licence",
    metavar="SPDX",
    default="NOASSERTION",
    show_default=True,
    help="The licence line of the file, as an SPDX expression: Apache-2.0.",
)
@click.option(
    "--force", is_flag=True, help="Overwrite files that were edited since they were saved."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.save/1).")
@click.pass_obj
def save(
    state: State,
    wanted: tuple[str, ...],
    folder: Path,
    form: Literal["file", "hf-kernel"],
    shapes: tuple[str, ...],
    dtype: str | None,
    outside: Literal["nearest", "reference"] | None,
    reference: Asked | None,
    licence: str,
    force: bool,
    as_json: bool,
) -> None:
    """Save a draft that passed as one file, with its receipt and its test; or as a package.

    \b
      kmint save 12.3 --to my_project/kernels
      kmint save 12.3 --to kmint-softmax --format hf-kernel
      kmint save 12.3 12.5 --shape 8192x4096:bf16 --shape 32768x1024:bf16 --to kernels

    Several drafts make one file with a table: the fastest of them at each shape. A call takes the
    nearest shape. Another dtype takes the nearest kernel, because that was judged there too and is
    one launch; --outside reference gives it PyTorch. Times come from the history, else from the GPU.

    The kernel is judged once more as it will stand. Its host code may only compute shapes, allocate
    and launch; a kernel that needs more can win, but is not saved.
    """
    from kmint_tui.core.referee import no_gpu_reason, open_referee
    from kmint_tui.core.save import SaveAsked, first_call, left_open, save_by_shape, save_draft
    from kmint_tui.history.reading import read_history

    check_licence(licence)
    asked = SaveAsked(
        ids=wanted,
        shapes=shapes,
        dtype=dtype,
        outside=outside,
        no_gpu=no_gpu_reason(),
        form=form,
        force=force,
        licence=licence,
    )
    if asked.chooses and reference is not None:
        raise UsageError(
            "a file that chooses by shape is for an operation of the catalogue",
            fix="leave out --reference, or give one ID and no --shape, --dtype and --outside",
        )
    if not paths.history_file().exists():
        raise UsageError("the history is empty", fix="`kmint mint softmax` is a start")
    with (
        read_history(paths.history_file()) as history,
        open_referee(state.demand(), state.err.note) as referee,
        SlowStepNotice(state.err) as notice,
    ):
        rows: tuple[Row, ...] = ()
        if asked.chooses:
            saved, rows = save_by_shape(history, referee, asked, folder, tell=notice.doing)
        else:
            notice.doing("judging the kernel as it will stand")
            saved = save_draft(
                history,
                referee,
                wanted[0],
                folder,
                reference=reference,
                form=form,
                force=force,
                licence=licence,
            )
    if as_json:
        content = {
            "id": wanted[0],
            "files": [str(path) for path in saved.files],
            "verdict": saved.verdict.to_json(),
            "ids": list(wanted),
            "shapes": [row.to_json() for row in (saved.choice.rows if saved.choice else rows)],
            "outside": saved.choice.outside if saved.choice else None,
        }
        state.out.document("kmint.save/1", content)
        return
    for path in saved.files:
        state.out.text(str(path))
    tell_shapes(state, rows, asked.ids)
    if warning := left_open(saved):
        state.err.note(warning)
    if hint := first_call(saved, reference):
        state.err.hint(hint)


def check_licence(licence: str) -> None:
    """Raises UsageError for text with characters that no SPDX expression has."""
    if not re.fullmatch(r"[A-Za-z0-9.+()-]+(?: [A-Za-z0-9.+()-]+)*", licence) or len(licence) > 70:
        raise UsageError(
            f"{licence!r} is no SPDX licence expression", fix="for example --licence Apache-2.0"
        )


def tell_shapes(state: State, rows: Sequence[Row], ids: Sequence[str]) -> None:
    """Note the kernel of each shape, the drafts that the file leaves out, and every loss."""
    for row in rows:
        state.err.note(f"{row.name}: draft {row.draft}, {row.ratio:.3f}x {row.bar}")
    if not rows:
        return
    used = {row.draft for row in rows}
    if left := [one for one in ids if one not in used]:
        state.err.note(f"left out, as the fastest nowhere: {', '.join(left)}")
    if lost := [row.name for row in rows if row.decision == "loss"]:
        state.err.note(f"slower than the fastest baseline at {', '.join(lost)}")
