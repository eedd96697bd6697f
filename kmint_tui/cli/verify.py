"""`kmint verify FILE|DIR`: is a saved kernel unchanged, and does the referee still pass it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Literal

import click

from kmint_tui.cli.framework import RunsCandidates
from kmint_tui.cli.options import reference_option, session_option
from kmint_tui.cli.slow_steps import SlowStepNotice
from kmint_tui.cli.state import State
from kmint_tui.cli.verify_report import show_folder, show_one, write_junit
from kmint_tui.core.exit_codes import ExitCode
from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from kmint_tui.save.own_reference import ReferenceFile
    from referee.reference.asked import Asked
    from referee.verdict import Verdict


@click.command(cls=RunsCandidates)
@click.argument(
    "path",
    metavar="FILE|DIR",
    type=click.Path(path_type=Path),
    help="A saved kernel, or a folder of them.",
)
@reference_option()
@click.option(
    "--level",
    type=click.Choice(["correct", "full"]),
    default="correct",
    show_default=True,
    help="Also time it? Needs the GPU.",
)
@session_option
@click.option(
    "--digests", "digests_only", is_flag=True, help="Only compare the digests; do not judge again."
)
@click.option(
    "--junit",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the result as JUnit XML, which CI systems show.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.verify/1).")
@click.pass_obj
def verify(
    state: State,
    path: Path,
    reference: Asked | None,
    level: Literal["correct", "full"],
    by_session: bool,
    digests_only: bool,
    junit: Path | None,
    as_json: bool,
) -> int:
    """Check saved kernels: are the files the ones that were judged, and does the referee pass them
    with a fresh seed?

    \b
      kmint verify kernels/softmax.py
      kmint verify kernels                 a table of every saved kernel in a folder
      kmint verify kernels --junit a.xml   the same for a CI system

    A kernel that was minted by a reference of your own needs that again (--reference); in a folder,
    the others are judged by their operations. Each kernel of a file that chooses by shape is judged,
    also at the shapes of its table that fit on this GPU.

    A file without a receipt was never judged here, and does not hold. kmint writes nothing into
    their folder, so that they may lie in a place that can only be read.

    Exit code 0 means that everything holds, 1 that something does not. Another GPU, reference or
    version of torch or Triton than at the time is reported, and is no failure. Without a GPU the
    verdict comes from Triton's interpreter, which is weaker.
    """
    from kmint_tui.core.judges import open_judge
    from kmint_tui.core.referee import no_gpu_reason, unfit
    from kmint_tui.core.shape import usable_shapes
    from kmint_tui.core.task import wanted_task, with_long_rows
    from kmint_tui.save.own_reference import reference_file
    from kmint_tui.save.verifying import (
        measured_shapes,
        own_inputs,
        own_reference,
        saved_kernels,
        without_copies,
    )
    from kmint_tui.save.verifying import verify as check

    began = perf_counter()
    copies = without_copies(saved_kernels(path))
    kernels = tuple(copies)
    if not digests_only and reference is None:
        _check_needs_no_reference(kernels)
    if digests_only:
        found = [check(file, None) for file in kernels]
    else:
        lonely = no_gpu_reason()
        if lonely is not None:
            state.err.note(
                f"no GPU ({lonely}): kernels are checked by Triton's interpreter, which is weaker"
            )
        with (
            open_judge(state.demand(), state.err.note, by_session=by_session) as opened,
            SlowStepNotice(state.err) as notice,
        ):
            known: dict[tuple[str, str, Asked | None, tuple[str, ...]], Verdict] = {}

            def judge(
                candidate: str, op: str, by: Asked | None, shapes: tuple[str, ...]
            ) -> Verdict:
                # Files that differ outside their judged part may hold the same kernel.
                key = (candidate, op, by, shapes)
                if key not in known:
                    notice.reading(by)
                    usable = () if by else usable_shapes(op, shapes)
                    task = wanted_task(None if by else op, by, usable)[1]
                    verdict = known[key] = opened.judge.judge(
                        candidate, with_long_rows(task), level=level, strict=True, tell=notice.doing
                    )
                    if verdict.verdict == "error":
                        raise unfit(verdict)
                return known[key]

            found = []
            for file in kernels:
                given = (
                    reference if reference and (own_reference(file) or not path.is_dir()) else None
                )
                by = (
                    given.remembering(*own_inputs(file)) if given else _shipped(own_reference(file))
                )
                again = partial(judge, by=by, shapes=measured_shapes(file))
                found.append(check(file, again, reference_file(by) if by else None))
    found = [replace(one, copies=copies[one.file]) for one in found]
    if junit is not None:
        write_junit(junit, found, perf_counter() - began)
    if as_json:
        state.out.document(
            "kmint.verify/1",
            {"holds": all(one.holds for one in found), "kernels": [one.to_json() for one in found]},
        )
    else:
        if path.is_dir():
            show_folder(state.out, found, path)
        else:
            show_one(state.out, found[0])
    return ExitCode.DONE if all(one.holds for one in found) else ExitCode.NOTHING_PASSED


def _check_needs_no_reference(kernels: Sequence[Path]) -> None:
    """Raises UsageError with the name of a kernel that no operation of the catalogue can judge. Its
    reference may have the name of an operation.
    """
    from kmint_tui.save.verifying import own_reference

    for file in kernels:
        own = own_reference(file)
        if own is not None and _shipped(own) is None:
            raise UsageError(
                f"{file} was minted by a reference of your own, {own.name}",
                fix=f"`kmint verify {file} --reference PATH/TO/{own.name}`, or --digests to compare the digests alone",
            )


def _shipped(own: ReferenceFile | None) -> Asked | None:
    """The reference that kmint ships under that name; None for another."""
    from referee.problem import TaskName

    found = TaskName.of(own.name.rpartition(":")[2]).asked if own else None
    return (
        found if own and found and own.name == f"{Path(found.file).name}:{found.function}" else None
    )
