"""Checks of the GPU, its driver, and the match of driver, CUDA, torch and Triton.

The answers come from NVML; neither torch nor CUDA is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path

from kmint_tui.doctor.finding import Finding
from kmint_tui.doctor.machine import installed_version

# Source: Triton's compatibility statement.
LEAST_CAPABILITY = (8, 0)
INTERPRETED = "kernels are checked by Triton's interpreter and never timed"
LOOK = "run nvidia-smi to see the driver's own report"


def usable() -> bool:
    """True when this machine can replay kernels on a GPU."""
    from referee.gpu.replayer import Replayer

    return Replayer.available() is None


def gpu() -> Iterator[Finding]:
    """Findings on the first GPU, its clocks, and the versions above it."""
    from referee.gpu.replayer import Replayer
    from referee.timing.nvml import Clocks

    reason = Replayer.available()
    if reason is not None:
        yield Finding(
            "gpu",
            "warn",
            f"{reason}; {INTERPRETED}",
            "to time kernels: an NVIDIA GPU with its driver, and a CUDA build of torch",
        )
    else:
        yield _device()
        watched = Clocks.open()
        if isinstance(watched, str):
            yield Finding("clocks", "warn", watched, "install the driver's NVML library")
        else:
            others = watched.neighbours()
            users = "; ".join(f"{one.name} ({one.pid})" for one in others)
            if others:
                yield Finding(
                    "clocks",
                    "warn",
                    f"other processes use the GPU: {users}",
                    "end them before you time kernels",
                )
            else:
                text = "clocks are watched, and no other process is seen on the GPU"
                yield Finding("clocks", "ok", text)
    yield _match(has_gpu=reason is None)


def _device() -> Finding:
    import pynvml

    from referee.timing.nvml import open_gpu

    try:
        handle = open_gpu()
        name = pynvml.nvmlDeviceGetName(handle)
        capability = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    except pynvml.NVMLError as error:
        return Finding(
            "gpu",
            "unknown",
            f"the driver does not describe the GPU (NVML error {error.value})",
            LOOK,
        )
    text = f"{name}, compute capability {capability[0]}.{capability[1]}"
    if capability < LEAST_CAPABILITY:
        return Finding(
            "gpu",
            "fail",
            f"{text}: Triton supports 8.0 and later",
            f"set CUDA_VISIBLE_DEVICES= to run without it: {INTERPRETED}",
        )
    return Finding("gpu", "ok", text)


def _match(*, has_gpu: bool) -> Finding:
    torch, triton, built_for = (
        installed_version("torch"),
        installed_version("triton"),
        _torch_cuda(),
    )
    text = f"torch {torch} for {'CUDA ' + built_for if built_for else 'CPU'}, triton {triton}"
    if torch is None or triton is None:
        return Finding("versions", "fail", text.replace("None", "missing"), "install kmint again")
    wanted = _triton_of_torch()
    if wanted and not _same(wanted, triton):
        return Finding(
            "versions",
            "warn",
            f"{text}; this torch was built with triton {wanted}",
            f"pip install triton=={wanted}",
        )
    if not has_gpu:
        return Finding("versions", "ok", text)
    driver = driver_cuda()
    if driver is None:
        return Finding(
            "versions",
            "unknown",
            f"{text}; the driver does not report its CUDA version",
            LOOK,
        )
    text = f"driver for CUDA {driver[0]}.{driver[1]}, {text}"
    # Drivers work with every minor version of their CUDA generation, not with a newer generation.
    if built_for and driver[0] < int(built_for.split(".")[0]):
        return Finding(
            "versions",
            "fail",
            text,
            "update the NVIDIA driver, or install a torch built for the driver's CUDA version",
        )
    return Finding("versions", "ok", text)


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA version (major, minor) that the driver supports; None without an answer."""
    import pynvml

    try:
        pynvml.nvmlInit()
        number = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    except pynvml.NVMLError:
        return None
    return number // 1000, number % 1000 // 10


def _torch_cuda() -> str | None:
    spec = find_spec("torch")
    file = Path(spec.origin).with_name("version.py") if spec and spec.origin else None
    text = file.read_text(encoding="utf-8") if file and file.is_file() else ""
    found = re.search(r"^cuda\b[^=\n]*=\s*['\"]([\d.]+)", text, re.MULTILINE)
    return found[1] if found else None


def _triton_of_torch() -> str | None:
    try:
        lines = requires("torch") or []
    except PackageNotFoundError:
        return None
    found = [match[1] for line in lines if (match := re.match(r"triton\s*==\s*([\d.]+)", line))]
    return found[0] if found else None


def _same(wanted: str, have: str) -> bool:
    return have.split("+")[0].split(".")[:3] == wanted.rstrip(".").split(".")[:3]
