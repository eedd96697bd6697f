"""Access to the referee: opening one, its GPU and its errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kmint_tui import paths
from kmint_tui.errors import EnvironmentUnfit, UsageError

if TYPE_CHECKING:
    from referee.judge import Referee
    from referee.sandbox.demand import Demand
    from referee.verdict import Verdict


MOST_THREADS = 64
"""Verdicts at once of one session: as many as it has drafts at most."""


def no_gpu_reason() -> str | None:
    """The reason why kernels cannot be replayed and timed; None where they can."""
    from referee.gpu.replayer import Replayer

    return Replayer.available()


def judge_threads() -> int:
    """Number of drafts to judge at once: one for each processor core, at most eight."""
    return max(1, min(8, len(os.sched_getaffinity(0))))


@contextmanager
def open_referee(demand: Demand, tell: Callable[[str], None] = lambda _: None) -> Iterator[Referee]:
    """The referee with its workers, which are warm before the first draft is done.

    `tell` gets a line for each probe of an untested version of Triton. Raises EnvironmentUnfit
    where the sandbox is weaker than `demand`, or where the referee cannot use this Triton.
    """
    from kmint_tui import triton_fit
    from kmint_tui.core import sandbox
    from kmint_tui.core.baseline_choices import forget_left
    from referee.judge import Referee

    sandbox.check(demand)
    triton_fit.check(demand, tell)
    cache = paths.cache_dir() / "referee"
    forget_left(cache / "baselines")
    with Referee(cache=cache, demand=demand) as referee:
        yield referee


def check_target(name: str | None) -> str | None:
    """The name of a GPU architecture to compile for. Raises UsageError with the known names."""
    from referee.target import Target, UnknownTarget

    if name is not None:
        try:
            Target.parse(name)
        except UnknownTarget as error:
            raise UsageError(str(error)) from error
    return name


def unfit(verdict: Verdict) -> EnvironmentUnfit:
    """The error for a verdict of "error": the referee could not work, which says nothing about the
    kernel.
    """
    return EnvironmentUnfit(verdict.reason, title="the referee cannot work here")
