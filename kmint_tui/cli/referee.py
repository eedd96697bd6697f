"""The referee as the commands use it: opened once, its own failures told as kmint's, its verdicts shown."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kmint_tui import paths
from kmint_tui.cli.operations import operation
from kmint_tui.errors import EnvironmentUnfit, UsageError

if TYPE_CHECKING:
    from referee.device.jobs import TaskName
    from referee.judge import Referee
    from referee.ops import Op
    from referee.verdict import Verdict


def no_gpu_reason() -> str | None:
    """None when kernels can be replayed and timed here, else why not."""
    from referee.device.gpu import Replayer

    return Replayer.available()


def judges() -> int:
    """How many drafts to judge at once: one a processor core, at most eight."""
    return max(1, min(8, len(os.sched_getaffinity(0))))


@contextmanager
def open_referee() -> Iterator[Referee]:
    """The referee with its workers, which are warm by the time the first draft is done."""
    from referee.judge import Referee

    with Referee(cache=paths.cache_dir() / "referee") as referee:
        yield referee


def wanted_task(op: str | None, reference: str | None) -> tuple[Op, str | TaskName]:
    """What a kernel is judged by: an operation of the catalogue, or a reference that the user brings.

    Raises UsageError when neither or both are given, or either is not usable.
    """
    if op is not None and reference is not None:
        raise UsageError(f"{op} and --reference exclude each other: a kernel is judged by one of them", fix="leave one of them out")
    if op is None and reference is None:
        raise UsageError("name an operation of the catalogue, or give --reference FILE.py:function", fix="`kmint ops` lists the operations")
    if op is not None:
        return operation(op), op
    assert reference is not None
    from referee.device.jobs import TaskName
    from referee.ops.user import UserReferenceError, load_user, split_reference

    path, function = split_reference(reference)
    try:
        found = load_user(path, function, "cpu" if no_gpu_reason() else "gpu").op
    except UserReferenceError as error:
        raise UsageError(
            " ".join(str(error).split()), title="reference not usable", fix="`kmint judge --help` says what such a file holds"
        ) from error
    return found, TaskName(found.name, str(path.resolve()), function)


def check_target(name: str | None) -> str | None:
    """The name of a GPU architecture to compile for. Raises UsageError naming the known ones."""
    from referee.target import Target, UnknownTarget

    if name is not None:
        try:
            Target.parse(name)
        except UnknownTarget as error:
            raise UsageError(str(error)) from error
    return name


def unfit(verdict: Verdict) -> EnvironmentUnfit:
    """The error that a verdict of "error" stands for: the referee could not work, and nothing is said of the kernel."""
    return EnvironmentUnfit(verdict.reason, title="the referee cannot work here")


def why(verdict: Verdict) -> str:
    """One line that says what the verdict rests on."""
    if verdict.verdict in ("rejected", "error"):
        return f"{verdict.stage}: {verdict.reason}"
    if verdict.verdict == "correct":
        agreeing = sum(cell.role != "capability" and cell.status == "pass" for cell in verdict.cells)
        how = "Triton's interpreter" if verdict.mode == "interpret" else "replay, not timed"
        return f"{agreeing} cells agree with float64 ({how})"
    return verdict.reason


def device_microseconds(timing: Mapping[str, Any] | None) -> float | None:
    """The kernel's median device time out of a verdict's timing; None where it was not timed."""
    candidate = (timing or {}).get("device", {}).get("candidate")
    return float(candidate["median"]) if isinstance(candidate, Mapping) and "median" in candidate else None
