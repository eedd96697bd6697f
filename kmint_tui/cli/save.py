"""`kmint save ID --to DIR`: put a kernel that passed into a project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from kmint_tui import paths
from kmint_tui.cli.framework import Command
from kmint_tui.cli.history_ids import complete_draft
from kmint_tui.cli.patience import Patience
from kmint_tui.cli.state import State
from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from kmint_tui.history.store import History
    from kmint_tui.save.saving import Saved
    from referee.judge import Referee
    from referee.verdict import Verdict


@click.command(cls=Command)
@click.argument("wanted", metavar="ID", shell_complete=complete_draft)
@click.option("--to", "folder", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder to save into.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["file", "hf-kernel"]),
    default="file",
    show_default=True,
    help="One file with receipt and test, or a package for Hugging Face `kernels`.",
)
@click.option("--reference", metavar="FILE.py[:FN]", help="The reference it was minted by, when that was your own.")
@click.option("--force", is_flag=True, help="Overwrite files that were edited since they were saved.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.save/1).")
@click.pass_obj
def save(
    state: State, wanted: str, folder: Path, form: Literal["file", "hf-kernel"], reference: str | None, force: bool, as_json: bool
) -> None:
    """Save a draft that passed as one file, with its receipt and its test; or as a package.

    \b
      kmint save 12.3 --to my_project/kernels
      kmint save 12.3 --to kmint-softmax --format hf-kernel

    The kernel is judged once more as it will stand. Its host code may only compute shapes, allocate and launch; a kernel that
    needs more can win, but is not saved.
    """
    from kmint_tui.cli.referee import open_referee
    from kmint_tui.history.store import History

    if not paths.history_file().exists():
        raise UsageError("the history is empty", fix="`kmint mint softmax` is a start")
    with History(paths.history_file()) as history, open_referee() as referee, Patience(state.err) as patience:
        patience.doing("judging the kernel as it will stand")
        saved = save_draft(history, referee, wanted, folder, reference=reference, form=form, force=force)
    if as_json:
        content = {"id": wanted, "files": [str(path) for path in saved.files], "verdict": saved.verdict.to_json()}
        state.out.document("kmint.save/1", content)
        return
    for path in saved.files:
        state.out.text(str(path))


def save_draft(
    history: History,
    referee: Referee,
    wanted: str,
    folder: Path,
    *,
    reference: str | None = None,
    form: Literal["file", "hf-kernel"] = "file",
    force: bool = False,
) -> Saved:
    """Save the draft of that id into `folder`. Raises KmintError."""
    from kmint_tui.cli.referee import unfit, wanted_task
    from kmint_tui.history.records import parse_id
    from kmint_tui.save.own_reference import OwnReference, reference_file
    from kmint_tui.save.saving import check_needs_no_reference
    from kmint_tui.save.saving import save as save_files
    from referee.subject import Subject

    where = parse_id(wanted)
    if where.number is None:
        raise UsageError(f"{wanted} is a session; name one of its drafts", fix=f"for example `kmint save {wanted}.0 --to {folder}`")
    session, draft = history.session(where.session), history.draft(where.session, where.number)
    if reference is None:
        check_needs_no_reference(session, draft)
    op, task = wanted_task(None if reference else session.op, reference)
    own = OwnReference(reference_file(reference), Subject(task).cells) if reference else None

    def judge(text: str) -> Verdict:
        verdict = referee.judge(text, task, level="correct")
        if verdict.verdict == "error":
            raise unfit(verdict)
        return verdict

    return save_files(session, draft, op, folder, judge=judge, own=own, form=form, force=force)
