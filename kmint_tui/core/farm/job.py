"""One piece of the referee's work as data, for any machine: it holds texts and no path.

A worker of this host and a Ray task take the same `Job` and give the same answer: a JSON object,
or a refusal. The address of a job is the SHA-256 of its content, so equal work has one address.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from kmint_tui import __version__, paths
from kmint_tui.documents import compact
from kmint_tui.errors import EnvironmentUnfit, KmintError, UsageError, storage_error
from kmint_tui.service.protocol import Demand, Level, refusal, refused

if TYPE_CHECKING:
    from referee.problem import TaskName

MOST_BYTES = 64 << 20
"""Bytes of a job or an answer on its way."""

Kind = Literal["judge", "begin", "check", "cell", "gate", "race"]
"""A verdict; a device's start, and the check, before a grid; one cell of a grid; one run of a gate; a
race of variants."""


@dataclass(frozen=True)
class Versions:
    """The versions that decide a verdict."""

    kmint: str
    torch: str | None
    triton: str | None

    @classmethod
    def here(cls) -> Versions:
        """The versions of this installation. Imports neither torch nor Triton."""
        from referee.versions import describe_host, triton_version

        torch = describe_host()["torch"]
        return cls(__version__, torch, triton_version())

    def difference(self, wanted: Versions, where: str) -> str:
        """One line that names both versions of each part that differs; empty without one."""
        said = [
            f"{name} {mine or 'missing'}, and the job needs {name} {theirs or 'missing'}"
            for name, theirs in asdict(wanted).items()
            if (mine := getattr(self, name)) != theirs
        ]
        return f"{where} has {'; '.join(said)}" if said else ""


@dataclass(frozen=True)
class TextFile:
    """A file by its name, from the folder of the reference, and its text."""

    name: str
    text: str


@dataclass(frozen=True)
class Function:
    """A user's own reference: its file first, then every other file that it imports."""

    files: tuple[TextFile, ...]
    function: str | None
    inputs: tuple[str, ...]
    fixed: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """A cell of a grid."""

    rows: int
    columns: int
    dtype: Literal["float16", "bfloat16", "float32"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """Work for one device. `device` is the product name of the GPU, or `cpu`.

    `sources` is one kernel, or the variants of a race. Either `op` or `function` is set.
    """

    do: Kind
    sources: tuple[str, ...]
    op: str | None
    device: str
    versions: Versions
    function: Function | None = None
    shapes: tuple[str, ...] = ()
    timed: tuple[str, ...] = ()
    wide: bool = False
    level: Level = "full"
    target: str | None = None
    seed: int | None = None
    batch_invariant: bool = False
    strict: bool = False
    cell: Place | None = None
    demand: Demand = "files"

    @property
    def address(self) -> str:
        """The SHA-256 of the content, in hex."""
        return hashlib.sha256(compact(asdict(self)).encode("utf-8", "backslashreplace")).hexdigest()


def task_fields(task: str | TaskName) -> dict[str, Any]:
    """The fields `op`, `function`, `shapes`, `timed` and `wide` of a job for this task.

    Raises UsageError for a reference that imports files outside its folder.
    """
    from referee.ops.shipped import shipped

    if isinstance(task, str):
        return {"op": task}
    own = shipped().get(task.op)
    if task.file is None or (own is not None and str(own.file) == task.file):
        return {"op": task.op, "shapes": task.shapes, "timed": task.timed, "wide": task.wide}
    return {"op": None, "function": _function(task), "shapes": task.shapes}


def _function(task: TaskName) -> Function:
    from referee.reference.load import load_reference

    assert task.asked is not None and task.file is not None
    folder, texts = Path(task.file).parent, []
    for name, _ in load_reference(task.asked).files:
        if not _is_below(name):
            raise UsageError(
                f"{task.file} imports {name}, which lies outside its folder",
                title="the reference cannot be sent",
                fix="put the imported file next to the reference",
            )
        texts.append(TextFile(name, (folder / name).read_text(encoding="utf-8")))
    return Function(tuple(texts), task.function, task.inputs, task.fixed)


def task_of(job: Job) -> str | TaskName:
    """The task of a job on this machine; files of a function are written first.

    Raises KmintError.
    """
    from kmint_tui.core.task import wanted_task, with_long_rows
    from referee.reference.asked import Asked

    if job.function is None:
        task = wanted_task(job.op, None, job.shapes)[1]
        task = with_long_rows(task) if job.wide else task
        return task if isinstance(task, str) else replace(task, timed=job.timed)
    function = job.function
    digest = hashlib.sha256(compact(asdict(function)).encode("utf-8", "backslashreplace"))
    folder = paths.private_dir(paths.cache_dir() / "sent" / digest.hexdigest()[:32])
    for file in function.files:
        if not _is_below(file.name):
            raise UsageError(f"{file.name!r} is no file next to a reference")
        _write(folder / file.name, file.text)
    main = str(folder / function.files[0].name)
    return wanted_task(None, Asked(main, function.function, function.inputs, function.fixed))[1]


def _is_below(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and bool(path.parts)


def _write(file: Path, text: str) -> None:
    """Write a file of a sent reference, unless it is there: its folder is named by its content."""
    from convert import files

    try:
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            files.write_text(file, text)
    except OSError as error:
        raise storage_error(file, error) from error


def check(job: Job, here: Versions, device: str) -> None:
    """Raise EnvironmentUnfit, which names both sides, where a worker must not do a job."""
    from platform import node

    where = f"the worker on {node()}"
    said = here.difference(job.versions, where)
    if not said and device != job.device:
        said = f"{where} has {device}, and the job needs {job.device}"
    if said:
        raise EnvironmentUnfit(
            said, title="the worker refuses the job", fix="install the same versions on every host"
        )


def answer(done: dict[str, Any] | KmintError) -> dict[str, Any]:
    """A worker's answer as JSON: the result, or the refusal."""
    return {"refused": refusal(done)} if isinstance(done, KmintError) else {"done": done}


def opened(said: dict[str, Any]) -> dict[str, Any]:
    """What a worker did. Raises the KmintError of a refusal."""
    if "refused" in said:
        raise refused(said["refused"])
    done = said["done"]
    assert isinstance(done, dict)
    return done
