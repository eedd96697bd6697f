"""Saves a draft that passed into a folder, after one more verdict on the final file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from kmint_tui.history.records import Draft, Session
    from kmint_tui.history.store import History
    from kmint_tui.save.saving import Saved
    from kmint_tui.service.work import Judging
    from referee.reference.asked import Asked
    from referee.verdict import Verdict


def save_draft(
    history: History,
    referee: Judging,
    wanted: str,
    folder: Path,
    *,
    reference: Asked | None = None,
    form: Literal["file", "hf-kernel"] = "file",
    force: bool = False,
    licence: str = "NOASSERTION",
) -> Saved:
    """Save the draft with the id `wanted` into `folder`.

    `reference` is the own function that the draft was minted by, `licence` an SPDX expression.
    Raises KmintError.
    """
    from kmint_tui.core.referee import unfit
    from kmint_tui.core.task import wanted_task
    from kmint_tui.minting.request import inputs_of
    from kmint_tui.save.own_reference import own_reference
    from kmint_tui.save.saving import check_needs_no_reference
    from kmint_tui.save.saving import save as save_files
    from referee.problem import Problem, TaskName

    session, draft = load_draft(history, wanted, folder)
    shipped = None if reference else TaskName.of(session.op).asked
    if reference is None and shipped is None:
        check_needs_no_reference(session, draft)
    reference = reference.remembering(*inputs_of(session)) if reference else shipped
    op, task = wanted_task(None if reference else session.op, reference)
    subject = Problem(task).fitting(draft.source)
    op = subject.op if reference else op
    own = own_reference(reference, subject.cells, op.arguments) if reference else None

    def judge(text: str) -> Verdict:
        verdict = referee.judge(text, task, level="correct", strict=True)
        if verdict.verdict == "error":
            raise unfit(verdict)
        return verdict

    return save_files(
        session, draft, op, folder, judge=judge, own=own, form=form, force=force, licence=licence
    )


def load_draft(history: History, wanted: str, folder: Path) -> tuple[Session, Draft]:
    """The draft with the id `wanted`, and its session. Raises UsageError."""
    from kmint_tui.history.records import parse_id

    where = parse_id(wanted)
    if where.number is None:
        raise UsageError(
            f"{wanted} is a session; name one of its drafts",
            fix=f"for example `kmint save {wanted}.0 --to {folder}`",
        )
    return history.session(where.session), history.draft(where.session, where.number)


def refuse_reference(session: Session, draft: Draft) -> None:
    """Raises UsageError for a draft of a function that has its sizes from its own inputs."""
    from kmint_tui.save.saving import check_needs_no_reference
    from referee.problem import TaskName

    if TaskName.of(session.op).asked is not None:
        raise UsageError(
            f"the examples of {session.op} say its sizes, so no table chooses by shape",
            fix=f"`kmint save {draft.id} --to DIR` saves one kernel",
        )
    check_needs_no_reference(session, draft)


def left_open(saved: Saved) -> str:
    """A line on the inputs that were not judged because time ran out; empty without such inputs."""
    if not saved.unjudged:
        return ""
    return (
        f"not judged, because time ran out: {', '.join(saved.unjudged)}; save it again on a less busy"
        " machine"
    )


def first_call(saved: Saved, reference: Asked | None) -> str:
    """A line on how to use the saved kernel; one for the user's own function needs a GPU.

    Empty where the saved form has no such line.
    """
    if not saved.first_call:
        return ""
    only = " on a GPU" if reference is not None and saved.verdict.mode == "interpret" else ""
    return f"use it{only}: {saved.first_call}"


def told(saved: Saved, reference: Asked | None = None) -> tuple[str, ...]:
    """The written files, how to use the kernel, and the inputs that were not judged, a line each."""
    lines = (*map(str, saved.files), left_open(saved), first_call(saved, reference))
    return tuple(filter(None, lines))
