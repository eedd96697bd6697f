"""The rights of the engine's process: read the model file, compute, and answer.

llama.cpp parses a stranger's file in C++, so a fault there must not reach the user's other files or
the network. The log and the pipe to the parent are open already. With a GPU build the process may
also use the driver's device files.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kmint_tui.installed import llama_files, llama_version
from kmint_tui.smith.events import Choice
from referee.sandbox import confinement, file_view
from referee.sandbox.confinement import Rights
from referee.sandbox.demand import Protection

WITHOUT_VARIABLE = "KMINT_SMITH_WITHOUT"
# llama_cpp imports the last four, which may lie in another folder.
_PACKAGES = (
    "kmint_tui", "numpy", "llama_cpp", "typing_extensions", "diskcache", "jinja2", "markupsafe",
)  # fmt: skip
# llama.cpp's libraries for processors; every other `libggml-*.so` is for a kind of GPU.
_PROCESSOR_PARTS = ("base", "cpu", "blas", "rpc")
_DEVICE_FOLDER = Path("/dev")
_DEVICES = ("nvidia*", "nvhost*", "nvmap", "nvsciipc", "nvgpu", "dxg", "kfd", "dri")
_DRIVER_FILES = ("/run/opengl-driver", "/opt/cuda", "/opt/rocm", "/etc/nvidia", "/etc/vulkan")
_MODPROBE = "/usr/bin/nvidia-modprobe"
_LOG_BYTES = 64 << 20


def confine(model: Path | None) -> tuple[Protection, ...]:
    """Apply every layer to this process, which may then read `model` alone.

    Call it before a second thread exists.
    """
    return confinement.confine(rights(model), left_out())


def rights(model: Path | None) -> Rights:
    """The engine's rights on this machine, with this build of llama.cpp."""
    devices = _devices()
    if devices:
        _make_device_files()
    llama_version()
    _, readable = file_view.locate(_PACKAGES)
    size = model.stat().st_size if model is not None and model.is_file() else 0
    return Rights(
        readable=(
            *readable,
            *(_DRIVER_FILES if devices else ()),
            *((str(model),) if model is not None else ()),
        ),
        devices=devices,
        # A driver reserves far more addresses than there is memory.
        memory_bytes=None if devices else _memory() + size,
        file_bytes=_LOG_BYTES,
    )


def left_out() -> tuple[str, ...]:
    """Layers that the user switches off, for a driver that fails under one of them."""
    return tuple(
        name.strip() for name in os.environ.get(WITHOUT_VARIABLE, "").split(",") if name.strip()
    )


def as_choice(protections: Sequence[Protection]) -> Choice:
    """The layers as one of the engine's choices, the missing ones with their reasons."""
    missing = [layer for layer in protections if not layer.active]
    if not missing:
        return Choice("confinement", "every layer", ", ".join(layer.name for layer in protections))
    value = f"{len(protections) - len(missing)} of {len(protections)} layers"
    return Choice(
        "confinement", value, "; ".join(f"no {layer.name}: {layer.detail}" for layer in missing)
    )


def _devices() -> tuple[str, ...]:
    """The device files of GPUs, where this build of llama.cpp can use one."""
    parts = {
        path.name.removeprefix("libggml-").partition(".")[0] for path in llama_files("libggml-*")
    }
    if all(part.startswith(_PROCESSOR_PARTS) for part in parts):
        return ()
    return tuple(sorted(str(path) for pattern in _DEVICES for path in _DEVICE_FOLDER.glob(pattern)))


def _make_device_files() -> None:
    """Let the driver's own program make missing device files; the system call filter would stop it
    later.
    """
    if Path("/proc/driver/nvidia/version").exists() and not Path("/dev/nvidia-uvm").exists():
        try:
            subprocess.run(
                [_MODPROBE, "-c=0", "-u"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=30,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
