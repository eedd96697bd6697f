"""Verdicts on several kernels at once. This process alone writes the history, as verdicts come in.

A kernel whose verdict of the same job is in its named session is not judged again. So a command
that was killed goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kmint_tui.core.farm.farm import Farm, as_they_end
from kmint_tui.core.farm.job import Job
from kmint_tui.core.farm.judging import ADDRESS, verdict_of
from kmint_tui.core.keeping import Keeper, Kept
from kmint_tui.errors import KmintError
from kmint_tui.typed import made

if TYPE_CHECKING:
    from referee.problem import TaskName
    from referee.verdict import Verdict


@dataclass(frozen=True)
class Wanted:
    """A kernel to judge: its name for messages, its operation, its task, and its job."""

    name: str
    op: str
    task: str | TaskName
    job: Job


@dataclass(frozen=True)
class Found:
    """A verdict, the draft that it is kept as, and whether it is from an earlier run."""

    verdict: Verdict
    kept: Kept | None
    known: bool = False


def judge_all(
    farm: Farm,
    wanted: Sequence[Wanted],
    keeper: Keeper | None,
    on_found: Callable[[Wanted, Found], object],
) -> list[Found]:
    """One result a kernel, in the order of `wanted`; `on_found` gets each as it comes.

    Kernels with one job are judged once. Raises the first failure, after all others are done.
    """
    drafts: list[str | None] = []
    same: dict[str, list[int]] = {}
    judged: dict[str, Verdict] = {}
    results: dict[int, Found] = {}

    def found(number: int, one: Found) -> None:
        results[number] = one
        on_found(wanted[number], one)

    def ended(number: int, verdict: Verdict) -> None:
        draft = drafts[number]
        found(number, Found(verdict, keeper.after(draft, verdict) if keeper and draft else None))

    def left() -> Iterator[Job]:
        for number, one in enumerate(wanted):
            job = one.job
            draft = keeper.before(job.sources[0], one.op, one.task) if keeper else None
            drafts.append(draft)
            known = _known(keeper, draft, job)
            if known is not None:
                found(number, known)
            elif job.address in judged:
                ended(number, judged[job.address])
            else:
                same.setdefault(job.address, []).append(number)
                if len(same[job.address]) == 1:
                    yield job

    failure: KmintError | None = None
    with keeper.held() if keeper else nullcontext():
        for job, future in as_they_end(farm, left()):
            try:
                verdict = judged[job.address] = verdict_of(job, future.result())
            except KmintError as error:
                failure = failure or error
                continue
            for number in same[job.address]:
                ended(number, verdict)
    if failure is not None:
        raise failure
    return [results[number] for number in range(len(wanted))]


def _known(keeper: Keeper | None, draft: str | None, job: Job) -> Found | None:
    """The verdict of an earlier run of the same job."""
    from referee.verdict import Verdict

    if keeper is None or draft is None:
        return None
    document, kept = keeper.stored(draft)
    if document is None or document.get("environment", {}).get(ADDRESS) != job.address:
        return None
    return Found(made(Verdict, document, f"the verdict of draft {draft}"), kept, known=True)
