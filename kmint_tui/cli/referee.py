"""The referee as the commands use it: opened once, its own failures told as kmint's, its verdicts shown."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kmint_tui.cli.operations import operation
from kmint_tui.errors import EnvironmentUnfit, UsageError

if TYPE_CHECKING:
    from referee.judge import Referee
    from referee.ops import Op
    from referee.ops.task import Task
    from referee.verdict import Verdict


def no_gpu_reason() -> str | None:
    """None when kernels can be replayed and timed here, else why not."""
    from referee.gpu import Replayer

    return Replayer.available()


def judges() -> int:
    """How many drafts to judge at once: one a processor core, at most four."""
    return max(1, min(4, len(os.sched_getaffinity(0))))


@contextmanager
def open_referee() -> Iterator[Referee]:
    """The referee with its processes. Raises EnvironmentUnfit when it cannot work on this machine."""
    from referee.judge import Referee

    with referee_errors(), Referee() as referee:
        yield referee


@contextmanager
def referee_errors() -> Iterator[None]:
    """Failures of the referee's own machinery, raised as EnvironmentUnfit."""
    from referee.gpu import ReplayerError
    from referee.zygote import ZygoteError

    try:
        yield
    except (ReplayerError, ZygoteError) as error:
        raise EnvironmentUnfit(
            str(error), title="the referee cannot work", fix="`kmint selftest` shows what does and what does not"
        ) from error


def wanted_task(op: str | None, reference: str | None) -> tuple[Op, str | Task]:
    """What a kernel is judged by: an operation of the catalogue, or a reference that the user brings.

    Raises UsageError when neither or both are given, or either is not usable.
    """
    if (op is None) == (reference is None):
        raise UsageError("name an operation of the catalogue, or give --reference FILE.py:function", fix="`kmint ops` lists the operations")
    if op is not None:
        return operation(op), op
    assert reference is not None
    from referee.ops.user import UserReferenceError, load_user, split_reference

    try:
        task = load_user(*split_reference(reference), profile="cpu" if no_gpu_reason() else "gpu")
    except UserReferenceError as error:
        raise UsageError(str(error), title="reference not usable", fix="docs: `kmint judge --help`") from error
    return task.op, task


def why(verdict: Verdict) -> str:
    """One line that says what the verdict rests on."""
    return f"{verdict.stage}: {verdict.reason}" if verdict.verdict in ("rejected", "error") else verdict.reason


def device_microseconds(timing: Mapping[str, Any] | None) -> float | None:
    """The kernel's median device time out of a verdict's timing; None where it was not timed."""
    candidate = (timing or {}).get("device", {}).get("candidate")
    return float(candidate["median"]) if isinstance(candidate, Mapping) and "median" in candidate else None
