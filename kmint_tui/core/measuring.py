"""Shared parts of the measuring commands: the GPU, the referee's failures, the history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmint_tui import paths
from kmint_tui.errors import EnvironmentUnfit, StorageError

if TYPE_CHECKING:
    from kmint_tui.core.farm.farm import Farm
    from kmint_tui.core.kernel_choice import Kernel
    from kmint_tui.history.measurements import Kind
    from referee.sandbox.demand import Demand


def need_gpu(what: str) -> None:
    """Raise EnvironmentUnfit where no GPU can be used; the message says that `what` needs one."""
    from kmint_tui.core.referee import no_gpu_reason

    lonely = no_gpu_reason()
    if lonely is not None:
        fix = "`kmint judge` checks without one whether a kernel is right"
        raise EnvironmentUnfit(f"{what} is measured on a GPU, and there is none: {lonely}", fix=fix)


def need_gpus(what: str, farm: Farm | None) -> None:
    """Raise EnvironmentUnfit for devices that time nothing."""
    from kmint_tui.core.farm.farm import times

    if farm is not None and not times(farm):
        raise EnvironmentUnfit(
            f"{what} is measured on GPUs, and the cluster has none",
            fix="start workers on hosts with a GPU, or leave --ray-kind out",
        )


@contextmanager
def referee_failures(demand: Demand) -> Iterator[None]:
    """Turn failures of the referee itself into EnvironmentUnfit; they say nothing about a kernel."""
    from kmint_tui import triton_fit
    from kmint_tui.core.baseline_choices import forget_left
    from kmint_tui.core.referee import too_weak
    from referee.gpu.replayer import ReplayerError
    from referee.sandbox.zygote import JobLost, SandboxTooWeak, ZygoteError
    from referee.versions import ToolchainError, UnknownTriton

    triton_fit.check(demand)
    forget_left(cache() / "baselines")
    try:
        yield
    except SandboxTooWeak as weak:
        raise too_weak(str(weak), demand) from weak
    except (ReplayerError, ToolchainError, UnknownTriton, JobLost, ZygoteError) as error:
        fix = "`kmint selftest` shows which parts work"
        raise EnvironmentUnfit(
            " ".join(str(error).split()), title="the referee cannot work here", fix=fix
        ) from error


def cache() -> Path:
    """The referee's cache: compiled kernels, baselines, the records of unfinished grids."""
    return paths.cache_dir() / "referee"


def where(environment: Mapping[str, Any]) -> str:
    """The device and the versions of torch and Triton, in words."""
    from referee.versions import compiler_name

    return f"{environment.get('device')}, torch {environment.get('torch')}, triton {compiler_name(environment)}"


def keep(
    kind: Kind,
    kernel: Kernel,
    environment: Mapping[str, Any],
    result: str,
    document: Mapping[str, Any],
) -> StorageError | None:
    """Put a measurement into the history. Returns an error instead of raising it, so that the
    caller can still show the result.
    """
    from kmint_tui.history.measurements import Measurements, NewMeasurement
    from referee.versions import compiler_name

    device, torch, triton = (
        str(environment.get("device")),
        str(environment.get("torch")),
        compiler_name(environment),
    )
    made = NewMeasurement(
        kind=kind,
        name=kernel.name,
        draft=kernel.draft,
        source_sha256=kernel.source_sha256,
        op=kernel.op.name,
        device=device,
        torch=torch,
        triton=triton,
        result=result,
        document=document,
    )
    try:
        with Measurements(paths.history_file()) as store:
            store.add(made)
    except StorageError as error:
        return error
    return None
