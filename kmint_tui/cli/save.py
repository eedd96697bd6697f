"""`kmint save ID --to DIR`: put a kernel that passed into a project."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from kmint_tui import paths
from kmint_tui.cli.framework import RunsCandidates
from kmint_tui.cli.history_ids import complete_draft
from kmint_tui.cli.reference import reference_option
from kmint_tui.cli.slow_steps import SlowStepNotice
from kmint_tui.cli.state import State
from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from referee.reference.asked import Asked


@click.command(cls=RunsCandidates)
@click.argument(
    "wanted",
    metavar="ID",
    shell_complete=complete_draft,
    help="A draft that passed, such as 12.3; `kmint history` lists the sessions.",
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
    wanted: str,
    folder: Path,
    form: Literal["file", "hf-kernel"],
    reference: Asked | None,
    licence: str,
    force: bool,
    as_json: bool,
) -> None:
    """Save a draft that passed as one file, with its receipt and its test; or as a package.

    \b
      kmint save 12.3 --to my_project/kernels
      kmint save 12.3 --to kmint-softmax --format hf-kernel

    The kernel is judged once more as it will stand. Its host code may only compute shapes, allocate
    and launch; a kernel that needs more can win, but is not saved.
    """
    from kmint_tui.core.referee import open_referee
    from kmint_tui.core.save import first_call, left_open, save_draft
    from kmint_tui.history.reading import read_history

    check_licence(licence)
    if not paths.history_file().exists():
        raise UsageError("the history is empty", fix="`kmint mint softmax` is a start")
    with (
        read_history(paths.history_file()) as history,
        open_referee(state.demand(), state.err.note) as referee,
        SlowStepNotice(state.err) as notice,
    ):
        notice.doing("judging the kernel as it will stand")
        saved = save_draft(
            history,
            referee,
            wanted,
            folder,
            reference=reference,
            form=form,
            force=force,
            licence=licence,
        )
    if as_json:
        content = {
            "id": wanted,
            "files": [str(path) for path in saved.files],
            "verdict": saved.verdict.to_json(),
        }
        state.out.document("kmint.save/1", content)
        return
    for path in saved.files:
        state.out.text(str(path))
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
