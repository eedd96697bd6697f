"""How much memory there is for a smith and its referee, asked without loading torch, CUDA or llama.cpp.

Main memory comes from the kernel, within the limit of the container; files that the container has read or written lie in
its memory too, until something else needs it, so they count as free. GPU memory is NVML's, and counts only where the
installed llama.cpp was built for CUDA; only the first visible GPU is looked at.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_LIBRARY = "libnvidia-ml.so.1"
_GROUP = Path("/sys/fs/cgroup")
_RECLAIMABLE = ("inactive_file", "active_file", "slab_reclaimable")


@dataclass(frozen=True)
class Room:
    """Free bytes. `gpu` is None where models do not go to a GPU, `main` where the system does not say."""

    main: int | None
    gpu: int | None = None

    @property
    def place(self) -> str:
        """Where a smith's weights would lie, in words."""
        return "main memory" if self.gpu is None else "GPU memory"

    @property
    def free(self) -> int | None:
        """What is free there."""
        return self.main if self.gpu is None else self.gpu


def room() -> Room:
    """What is free now."""
    return Room(available_memory(), _gpu_free() if llama_uses_gpu() else None)


def available_memory() -> int | None:
    """Bytes of main memory that can be had without swapping; None where the system does not say."""
    fields = dict(line.split(":", 1) for line in _read(Path("/proc/meminfo")).splitlines() if ":" in line)
    words = fields.get("MemAvailable", "").split()
    if not words:
        return None
    free = int(words[0]) << 10
    limit, used = _read(_GROUP / "memory.max"), _read(_GROUP / "memory.current")
    if not (limit.isdecimal() and used.isdecimal()):
        return free
    counts = dict(line.split(None, 1) for line in _read(_GROUP / "memory.stat").splitlines() if " " in line)
    taken = int(used) - sum(int(counts.get(name, 0)) for name in _RECLAIMABLE)
    return min(free, max(0, int(limit) - max(0, taken)))


def llama_uses_gpu() -> bool:
    """Whether the installed llama.cpp was built for CUDA, told by its libraries."""
    spec = find_spec("llama_cpp")
    folders = [Path(place) / "lib" for place in (spec.submodule_search_locations or ())] if spec else []
    return any(True for folder in folders for _ in folder.glob("libggml-cuda.so*"))


class _MemoryInfo(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def _gpu_free() -> int | None:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    if visible in ("", "-1"):
        return None
    handle, info = ctypes.c_void_p(), _MemoryInfo()
    index = ctypes.c_uint(int(visible) if visible.isdecimal() else 0)
    try:
        library = ctypes.CDLL(_LIBRARY)
        if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
            return None
        return None if library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(info)) else int(info.free)
    except (OSError, AttributeError):
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
