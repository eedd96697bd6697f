"""`--gpus`, `--ray` and `--ray-kind`: the options for work on several devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kmint_tui.cli.state import State
from kmint_tui.core.farm.opening import FarmAsked

if TYPE_CHECKING:
    from kmint_tui.cli.judge import JudgeOptions, Prepared
    from kmint_tui.core.farm.verdicts import Found
    from kmint_tui.core.judges import Opened

Command = TypeVar("Command", bound=Callable[..., Any])

RAY = "A Ray cluster: HOST:PORT of its head, or `auto` to start one on this machine and end it."


def farm_options(command: Command) -> Command:
    """The options; the command gets them as one `FarmAsked`."""

    @click.option(
        "--gpus",
        metavar="all|N|A,B",
        help="GPUs of this host, all of one kind: `all`, the first N, or those of these numbers.",
    )
    @click.option("--ray", metavar="ADDRESS", help=RAY)
    @click.option(
        "--ray-kind",
        metavar="KIND",
        help="With --ray: the kind of GPU, as Ray names it (H200), or `cpu`.  [default: the only kind there]",
    )
    @wraps(command)
    def with_farm(
        *args: Any, gpus: str | None, ray: str | None, ray_kind: str | None, **rest: Any
    ) -> Any:
        offline = None
        if ray is not None:
            from kmint_tui.core.offline import offline_reason

            state = click.get_current_context().ensure_object(State)
            offline = offline_reason(flag=state.offline)
        return command(*args, farm=FarmAsked(gpus, ray, ray_kind, offline), **rest)

    return with_farm  # type: ignore[return-value]


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
