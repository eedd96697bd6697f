"""Saves drafts that passed into a folder, after one more verdict on the final file.

Several drafts of an operation go into one file that chooses among them by shape. The table comes from
verdicts at the asked shapes: those of the history where they were timed here, else new ones on the
GPU. A table of one kernel says nothing, so that file is the usual one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kmint_tui.core.shape import asked_shapes, wanted_shapes
from kmint_tui.core.shape_times import Times, fastest, here, in_common, named, times_of
from kmint_tui.errors import EnvironmentUnfit, UsageError
from kmint_tui.save.choosing import Outside, Row

if TYPE_CHECKING:
    from kmint_tui.history.records import Draft, Session
    from kmint_tui.history.store import History
    from kmint_tui.minting.result import MintResult
    from kmint_tui.save.saving import Saved
    from kmint_tui.service.work import Judging
    from referee.asked_shape import AskedShape
    from referee.ops import Op
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
    from kmint_tui.core.task import wanted_task, with_long_rows
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
        verdict = referee.judge(text, with_long_rows(task), level="correct", strict=True)
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


@dataclass(frozen=True, kw_only=True)
class SaveAsked:
    """The options of a save by shape. `no_gpu` is the reason why nothing can be timed here."""

    ids: tuple[str, ...]
    shapes: tuple[str, ...]
    dtype: str | None
    outside: Outside | None
    no_gpu: str | None
    form: Literal["file", "hf-kernel"] = "file"
    force: bool = False
    licence: str = "NOASSERTION"

    @property
    def chooses(self) -> bool:
        """True where an option asks for more than the file of one kernel."""
        return len(self.ids) > 1 or bool(self.shapes or self.dtype or self.outside)


def save_by_shape(
    history: History,
    referee: Judging,
    asked: SaveAsked,
    folder: Path,
    *,
    tell: Callable[[str], None],
) -> tuple[Saved, tuple[Row, ...]]:
    """Save the drafts, and return the table too. `tell` gets each step in words.

    Raises UsageError for drafts of different operations and for unusable shapes. Raises
    EnvironmentUnfit where a time is missing and there is no GPU.
    """
    from kmint_tui.save.saving import module_prefix, save, verdict_of, written
    from kmint_tui.save.several import prepare_several
    from referee.problem import TaskName

    drafts = [load_draft(history, one, folder) for one in dict.fromkeys(asked.ids)]
    op = _operation(drafts)
    for _, draft in drafts:
        verdict_of(draft)
    texts = wanted_shapes(op, asked.shapes, asked.dtype)
    shapes = tuple(asked_shapes(op, texts, None)) or in_common([named(one) for _, one in drafts])
    if len(drafts) > 1 and not shapes and asked.no_gpu is not None:
        raise EnvironmentUnfit(
            f"the drafts have no timed shape in common, and nothing can be timed here: {asked.no_gpu}",
            title="a table needs times",
            fix="save one of them alone, or tune them on a machine with a GPU",
        )
    outside: Outside = asked.outside or "nearest"
    rows: tuple[Row, ...] = ()
    known = bool(shapes) and all(shape in named(one) for _, one in drafts for shape in shapes)
    if known or asked.no_gpu is None or len(drafts) > 1 or outside == "reference":
        wanted = _some(shapes)
        rows = fastest(_times(drafts, op, wanted, referee, asked.no_gpu, tell), wanted)
    task = TaskName(op.name, shapes=tuple(map(str, shapes)), wide=True)

    def judge(text: str) -> Verdict:
        from kmint_tui.core.referee import unfit

        tell("judging the kernel as it will stand")
        verdict = referee.judge(text, task, level="correct", strict=True)
        if verdict.verdict == "error":
            raise unfit(verdict)
        return verdict

    used = [pair for pair in drafts if any(row.draft == pair[1].id for row in rows)] or drafts
    if len(used) == 1 and outside == "nearest":
        ((session, draft),) = used
        saved = save(
            session,
            draft,
            op,
            folder,
            judge=judge,
            form=asked.form,
            force=asked.force,
            licence=asked.licence,
            rows=rows,
        )
        return saved, rows
    kernel = prepare_several(
        used,
        rows,
        outside,
        op,
        judge=judge,
        folder=module_prefix(folder, op, asked.form),
        licence=asked.licence,
    )
    return written(kernel, folder, asked.form, force=asked.force), rows


def save_tuned(
    history: History,
    referee: Judging,
    ids: Sequence[str],
    folder: Path,
    outside: Outside | None,
    *,
    tell: Callable[[str], None],
) -> Saved:
    """Save drafts that were timed at the same shapes, by those times. Raises KmintError."""
    from kmint_tui.core.referee import no_gpu_reason

    asked = SaveAsked(
        ids=tuple(ids), shapes=(), dtype=None, outside=outside, no_gpu=no_gpu_reason()
    )
    return save_by_shape(history, referee, asked, folder, tell=tell)[0]


def save_minted(
    history: History,
    referee: Judging,
    result: MintResult,
    folder: Path,
    reference: Asked | None,
    *,
    tell: Callable[[str], None],
) -> Saved:
    """Save the best kernel of a session; of one at several shapes the fastest at each of them."""

    assert result.best_id is not None
    task = result.request.task
    several = () if isinstance(task, str) else task.shapes
    ids = [result.id_of(index) for index in result.ranking if _is_timed(result, index, several)]
    if len(several) > 1 and len(ids) > 1:
        return save_tuned(history, referee, ids, folder, None, tell=tell)
    return save_draft(history, referee, result.best_id, folder, reference=reference)


def _is_timed(result: MintResult, index: int, shapes: Sequence[str]) -> bool:
    """Whether a draft passed and was timed at every shape."""
    verdict = result.verdicts.get(index)
    times = times_of("", verdict.to_json()) if verdict and verdict.passed else {}
    return set(shapes) <= set(map(str, times))


def _operation(drafts: Sequence[tuple[Session, Draft]]) -> Op:
    """The operation of all drafts. Raises UsageError for several, and for a user's own function."""
    from referee.ops import get

    (first, draft), *others = drafts
    for session, other in others:
        if session.op != first.op:
            raise UsageError(
                f"draft {draft.id} is for {first.op}, and {other.id} for {session.op}",
                fix="a file holds kernels of one operation: save them one by one",
            )
    for session, one in drafts:
        refuse_reference(session, one)
    return get(first.op)


def _some(shapes: tuple[AskedShape, ...]) -> tuple[AskedShape, ...]:
    if not shapes:
        raise UsageError(
            "the drafts were not timed at a shape in common, so there is no table to choose by",
            fix="name the shapes with --shape, for example --shape 8192x4096:bf16",
        )
    return shapes


def _times(
    drafts: Sequence[tuple[Session, Draft]],
    op: Op,
    shapes: tuple[AskedShape, ...],
    referee: Judging,
    no_gpu: str | None,
    tell: Callable[[str], None],
) -> list[Times]:
    """The measurements of every draft at every shape, all of one device and its versions."""
    known = {draft.id: named(draft) for _, draft in drafts}
    used = [times[shape] for times in known.values() for shape in shapes if shape in times]
    place = here() if no_gpu is None else None
    places = {row.where for row in used}
    if no_gpu is not None and len(places) > 1:
        raise EnvironmentUnfit(
            f"the drafts were timed at different places: {'; '.join(sorted(places))}",
            fix="times are compared within one place only: save them on a GPU",
        )
    found: list[Times] = []
    for _, draft in drafts:
        mine = {
            shape: row
            for shape, row in known[draft.id].items()
            if place is None or row.where == place
        }
        missing = tuple(shape for shape in shapes if shape not in mine)
        if missing and no_gpu is not None:
            raise EnvironmentUnfit(
                f"draft {draft.id} was not timed at {missing[0]}, and there is no GPU: {no_gpu}",
                title="a table needs times",
                fix=f"on a machine with a GPU: `kmint tune {draft.id} --shape {missing[0]}`",
            )
        found.append({**mine, **(_measured(draft, op, missing, referee, tell) if missing else {})})
    return found


def _measured(
    draft: Draft,
    op: Op,
    shapes: tuple[AskedShape, ...],
    referee: Judging,
    tell: Callable[[str], None],
) -> Mapping[AskedShape, Row]:
    from kmint_tui.core.referee import unfit
    from referee.problem import TaskName

    names = tuple(map(str, shapes))
    tell(f"timing draft {draft.id} at {', '.join(names)}")
    verdict = referee.judge(
        draft.source, TaskName(op.name, shapes=names), level="full", strict=True
    )
    if verdict.verdict == "error":
        raise unfit(verdict)
    times = times_of(draft.id, verdict.to_json())
    if left := [str(shape) for shape in shapes if shape not in times]:
        raise UsageError(
            f"draft {draft.id} has no time at {left[0]}: {verdict.reason}",
            fix="leave out that draft or that shape",
        )
    return times
