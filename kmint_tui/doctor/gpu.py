"""The GPU, its driver, and whether driver, CUDA, torch and Triton go together. Asks NVML; loads neither torch nor CUDA."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path

from kmint_tui.doctor.finding import Finding
from kmint_tui.doctor.machine import installed_version

LIBRARY = "libnvidia-ml.so.1"
# Triton's own compatibility statement: NVIDIA GPUs of compute capability 8.0 and later.
LEAST_CAPABILITY = (8, 0)
INTERPRETED = "kernels are checked by Triton's interpreter and never timed"
TEXT_BYTES = 96


def usable() -> bool:
    """True when kernels can be replayed here."""
    from referee.device.gpu import Replayer

    return Replayer.available() is None


def gpu() -> Iterator[Finding]:
    """The first GPU, and whether the parts above it match."""
    from referee.device.gpu import Replayer
    from referee.measuring.clocks import Clocks

    reason = Replayer.available()
    if reason is not None:
        yield Finding(
            "gpu", "warn", f"{reason}; {INTERPRETED}", "to time kernels: an NVIDIA GPU with its driver, and a CUDA build of torch"
        )
    else:
        yield _device()
        watched = Clocks.open()
        if isinstance(watched, str):
            yield Finding("clocks", "warn", watched, "install the driver's NVML library")
        else:
            others = watched.neighbours()
            text = "; ".join(f"{one.name} ({one.pid})" for one in others)
            busy = Finding("clocks", "warn", f"others use the GPU: {text}", "end them before you time kernels")
            yield busy if others else Finding("clocks", "ok", "clocks are watched, and nobody else is seen on the GPU")
    yield _match(has_gpu=reason is None)


def _device() -> Finding:
    from referee.measuring.clocks import find

    library = ctypes.CDLL(LIBRARY)
    handle, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(TEXT_BYTES)
    if code := library.nvmlInit_v2() or find(library, handle):
        return Finding("gpu", "unknown", f"the driver does not describe the GPU (NVML error {code})", "look at it with nvidia-smi")
    library.nvmlDeviceGetName(handle, name, ctypes.c_uint(TEXT_BYTES))
    if code := library.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor)):
        return Finding(
            "gpu", "unknown", f"the driver does not tell the compute capability (NVML error {code})", "look at it with nvidia-smi"
        )
    text = f"{name.value.decode('utf-8', 'replace')}, compute capability {major.value}.{minor.value}"
    if (major.value, minor.value) < LEAST_CAPABILITY:
        return Finding(
            "gpu", "fail", f"{text}: Triton supports 8.0 and later", f"set CUDA_VISIBLE_DEVICES= to do without it: {INTERPRETED}"
        )
    return Finding("gpu", "ok", text)


def _match(*, has_gpu: bool) -> Finding:
    torch, triton, built_for = installed_version("torch"), installed_version("triton"), _torch_cuda()
    text = f"torch {torch} for {'CUDA ' + built_for if built_for else 'CPU'}, triton {triton}"
    if torch is None or triton is None:
        return Finding("versions", "fail", text.replace("None", "missing"), "install kmint again")
    wanted = _triton_of_torch()
    if wanted and not _same(wanted, triton):
        return Finding("versions", "warn", f"{text}; this torch was built with triton {wanted}", f"pip install triton=={wanted}")
    if not has_gpu:
        return Finding("versions", "ok", text)
    driver = driver_cuda()
    if driver is None:
        return Finding("versions", "unknown", f"{text}; the driver does not tell its CUDA version", "look at it with nvidia-smi")
    text = f"driver for CUDA {driver[0]}.{driver[1]}, {text}"
    # Minor versions of one CUDA generation work with each other's drivers; an older generation's driver does not.
    if built_for and driver[0] < int(built_for.split(".")[0]):
        return Finding("versions", "fail", text, "update the NVIDIA driver, or install a torch built for the driver's CUDA version")
    return Finding("versions", "ok", text)


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA version that the driver supports; None when it does not say."""
    number = ctypes.c_int()
    try:
        library = ctypes.CDLL(LIBRARY)
        if library.nvmlInit_v2() or library.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(number)):
            return None
    except (OSError, AttributeError):
        return None
    return number.value // 1000, number.value % 1000 // 10


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
