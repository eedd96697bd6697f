"""`kmint verify FILE|DIR`: is a saved kernel unchanged, and does the referee still pass it?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from kmint_tui.cli.diagnostics import ExitCode
from kmint_tui.cli.framework import Command
from kmint_tui.cli.patience import Patience
from kmint_tui.cli.state import State
from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from kmint_tui.save.verifying import Verification
    from referee.verdict import Verdict


@click.command(cls=Command)
@click.argument("path", metavar="FILE|DIR", type=click.Path(path_type=Path))
@click.option("--reference", metavar="FILE.py[:FN]", help="The reference it was minted by, when that was your own.")
@click.option(
    "--level", type=click.Choice(["correct", "full"]), default="correct", show_default=True, help="Also time it? Needs the GPU."
)
@click.option("--digests", "digests_only", is_flag=True, help="Only compare the digests; do not judge again.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.verify/1).")
@click.pass_obj
def verify(state: State, path: Path, reference: str | None, level: Literal["correct", "full"], digests_only: bool, as_json: bool) -> int:
    """Check saved kernels: are the files the ones that were judged, and does the referee pass them with a fresh seed?

    \b
      kmint verify kernels/softmax.py
      kmint verify kernels --json          every saved kernel in a folder, for a CI

    A kernel that was minted by a reference of your own needs that again (--reference); in a folder, the others are judged by
    their operations.

    Exit code 0 means that everything holds, 1 that something does not. Another GPU, reference or version of torch or Triton than
    at the time is reported, and is no failure. Without a GPU the verdict comes from Triton's interpreter, which is weaker.
    """
    from kmint_tui.cli.referee import no_gpu_reason, open_referee, unfit, wanted_task
    from kmint_tui.save.own_reference import reference_file
    from kmint_tui.save.verifying import own_reference, saved_kernels
    from kmint_tui.save.verifying import verify as check

    kernels = saved_kernels(path)
    if not digests_only and reference is None:
        _check_needs_no_reference(kernels)
    if digests_only:
        found = [check(file, None) for file in kernels]
    else:
        lonely = no_gpu_reason()
        if lonely is not None:
            state.err.note(f"no GPU ({lonely}): kernels are checked by Triton's interpreter, which is weaker")
        with open_referee() as referee, Patience(state.err) as patience:
            known: dict[tuple[str, str, str | None], Verdict] = {}

            def judge(candidate: str, op: str, by: str | None) -> Verdict:
                # A package holds the same kernel several times.
                if (candidate, op, by) not in known:
                    patience.reading(by)
                    task = wanted_task(None if by else op, by)[1]
                    verdict = known[candidate, op, by] = referee.judge(candidate, task, level=level, tell=patience.doing)
                    if verdict.verdict == "error":
                        raise unfit(verdict)
                return known[candidate, op, by]

            given = reference_file(reference) if reference else None
            found = []
            for file in kernels:
                by = reference if own_reference(file) or not path.is_dir() else None
                found.append(check(file, partial(judge, by=by), given if by else None))
    if as_json:
        state.out.document("kmint.verify/1", {"holds": all(one.holds for one in found), "kernels": [one.to_json() for one in found]})
    else:
        for one in found:
            _show(state, one)
    return ExitCode.DONE if all(one.holds for one in found) else ExitCode.NOTHING_PASSED


def _check_needs_no_reference(kernels: Sequence[Path]) -> None:
    """Raises UsageError naming a kernel that no operation of the catalogue can judge; its reference may have the name of one."""
    from kmint_tui.save.verifying import own_reference

    for file in kernels:
        own = own_reference(file)
        if own is not None:
            raise UsageError(
                f"{file} was minted by a reference of your own, {own.name}",
                fix=f"`kmint verify {file} --reference PATH/TO/{own.name}`, or --digests to compare the digests alone",
            )


def _show(state: State, found: Verification) -> None:
    edited = any(one != "unchanged" for one in found.files.values()) or not found.files
    state.out.heading(str(found.file))
    state.out.pairs(
        [
            ("files", "edited since judged" if edited else "unchanged since judged"),
            ("receipt", found.receipt),
            ("verdict", f"{found.verdict.verdict} ({found.verdict.mode}): {found.verdict.reason}" if found.verdict else "not judged"),
            *[("changed since", f"{stale.name}: {stale.then} -> {stale.now}") for stale in found.stale],
            *[("problem", problem) for problem in found.problems],
            ("holds", "yes" if found.holds else "no"),
        ]
    )
