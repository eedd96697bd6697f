"""Access to the referee: opening one, its GPU, its errors, and the layers of its sandbox.

An option, a variable or the settings say which layers a command requires.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kmint_tui import config, paths
from kmint_tui.config import switched_on
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
    from kmint_tui.core.baseline_choices import forget_left
    from referee.judge import Referee

    check_sandbox(demand)
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
    """The error for a verdict of "error", which says nothing about the kernel.

    The referee could not work, or does not judge a part of Triton that the kernel uses.
    """
    from referee.report import LIMITS

    title = "not judged" if verdict.guard in LIMITS else "the referee cannot work here"
    return EnvironmentUnfit(verdict.reason, title=title)


REQUIRE, ALLOW = "--require-sandbox", "--allow-weak-sandbox"
REQUIRE_VARIABLE, ALLOW_VARIABLE = "KMINT_REQUIRE_SANDBOX", "KMINT_ALLOW_WEAK_SANDBOX"
TITLE = "the sandbox is too weak here"
_ELSEWHERE = "use a newer kernel or a less restricted container (`kmint doctor` names every layer)"
_FIXES: dict[Demand, str] = {
    "all": f"{_ELSEWHERE}, or leave {REQUIRE} out",
    "files": f"{_ELSEWHERE}, or accept the risk with {ALLOW}",
    "any": _ELSEWHERE,
}


def demand(*, require: bool = False, allow_weak: bool = False) -> Demand:
    """The required layers. An option goes before a variable, a variable before the settings.

    `require` and `allow_weak` are the two options. Raises UsageError where one place asks for both,
    and ConfigError for wrong settings.
    """
    settings = config.load(paths.config_file()).config
    asked = (
        (REQUIRE, require, ALLOW, allow_weak),
        (
            REQUIRE_VARIABLE,
            switched_on(REQUIRE_VARIABLE),
            ALLOW_VARIABLE,
            switched_on(ALLOW_VARIABLE),
        ),
        (
            "sandbox.require",
            settings.sandbox_require,
            "sandbox.allow_weak",
            settings.sandbox_allow_weak,
        ),
    )
    for requires, required, allows, allowed in asked:
        if required and allowed:
            raise UsageError(
                f"{requires} and {allows} exclude each other", fix="leave one of them out"
            )
        if required or allowed:
            return "all" if required else "any"
    return "files"


def check_sandbox(wanted: Demand) -> None:
    """Raise EnvironmentUnfit where this host lacks a required layer, before anything is drafted."""
    from referee.sandbox import landlock
    from referee.sandbox.zygote import SandboxTooWeak, Zygote

    if wanted == "any" or (wanted == "files" and landlock.is_there()):
        return
    try:
        with Zygote(preload=(), demand=wanted) as server:
            _ = server.protections
    except SandboxTooWeak as weak:
        raise too_weak(str(weak), wanted) from weak


def too_weak(reason: str, wanted: Demand) -> EnvironmentUnfit:
    """The error for a host that lacks a required layer."""
    return EnvironmentUnfit(reason, title=TITLE, fix=_FIXES[wanted])
