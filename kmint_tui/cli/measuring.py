"""What the measuring commands share: they need a GPU, the referee's failures are told as kmint's, results go into the history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmint_tui import paths
from kmint_tui.errors import EnvironmentUnfit, StorageError

if TYPE_CHECKING:
    from kmint_tui.cli.kernel_choice import Kernel
    from kmint_tui.history.measurements import Kind


def need_gpu(what: str) -> None:
    """Raise EnvironmentUnfit, saying that `what` is measured on a GPU, where none can be used."""
    from kmint_tui.cli.referee import no_gpu_reason

    lonely = no_gpu_reason()
    if lonely is not None:
        fix = "`kmint judge` checks without one whether a kernel is right"
        raise EnvironmentUnfit(f"{what} is measured on a GPU, and there is none: {lonely}", fix=fix)


@contextmanager
def referee_failures() -> Iterator[None]:
    """What the referee's own machinery cannot do, as EnvironmentUnfit: nothing is said of the kernel."""
    from referee.compiling.toolchain import ToolchainError
    from referee.device.gpu import ReplayerError
    from referee.sandbox.workers import JobLost
    from referee.sandbox.zygote import ZygoteError
    from referee.triton_version import UnknownTriton

    try:
        yield
    except (ReplayerError, ToolchainError, UnknownTriton, JobLost, ZygoteError) as error:
        fix = "`kmint selftest` shows what does work and what does not"
        raise EnvironmentUnfit(" ".join(str(error).split()), title="the referee cannot work here", fix=fix) from error


def cache() -> Path:
    """The referee's cache: compiled kernels, baselines, the records of unfinished grids."""
    return paths.cache_dir() / "referee"


def where(environment: Mapping[str, Any]) -> str:
    """Device and versions in words."""
    return f"{environment.get('device')}, torch {environment.get('torch')}, triton {environment.get('triton')}"


def keep(kind: Kind, kernel: Kernel, environment: Mapping[str, Any], result: str, document: Mapping[str, Any]) -> StorageError | None:
    """Put a measurement into the history; returns why not, so that what was measured can still be shown."""
    from kmint_tui.history.measurements import Measurements, NewMeasurement

    device, torch, triton = (str(environment.get(name)) for name in ("device", "torch", "triton"))
    made = NewMeasurement(kind, kernel.name, kernel.draft, kernel.source_sha256, kernel.op.name, device, torch, triton, result, document)
    try:
        with Measurements(paths.history_file()) as store:
            store.add(made)
    except StorageError as error:
        return error
    return None
