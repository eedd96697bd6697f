"""Verdicts of several devices, shown as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kmint_tui.cli.state import State

if TYPE_CHECKING:
    from kmint_tui.cli.judge import JudgeOptions, Prepared
    from kmint_tui.core.farm.verdicts import Found
    from kmint_tui.core.judges import Opened


def farm_verdicts(
    opened: Opened, wanted: Sequence[Prepared], options: JudgeOptions, state: State
) -> list[Found]:
    """The verdicts of several devices on files; a line on stderr for each as it comes."""
    from kmint_tui.core.farm.judging import FarmJudge
    from kmint_tui.core.farm.verdicts import Wanted, judge_all

    assert opened.farm is not None and isinstance(opened.judge, FarmJudge)
    err, done, jobs = state.err, 0, []

    def show(one: Wanted, found: Found) -> None:
        nonlocal done
        done += 1
        known = " (from the history)" if found.known else ""
        kept = f"; {found.kept.text}" if found.kept else ""
        err.note(f"{done} of {len(wanted)}: {one.name}: {found.verdict.verdict}{known}{kept}")

    for one in wanted:
        for note in one.kernel.notes:
            err.note(note)
        job = opened.judge.job(
            one.kernel.source,
            one.task,
            level=options.level,
            target=options.target,
            seed=options.seed,
            batch_invariant=options.batch_invariant,
            strict=options.strict,
        )
        jobs.append(Wanted(one.kernel.name, one.op, one.task, job))
    return judge_all(opened.farm, jobs, options.keeper, show)
