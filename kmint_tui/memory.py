"""The memory that is available, read without loading torch, CUDA or llama.cpp.

Main memory counts within the limit of the container. Cached files of the container count as free,
because the kernel gives their memory up on demand.

GPU memory comes from NVML and counts only where the installed llama.cpp was built for CUDA. Only
the first visible GPU counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kmint_tui.installed import llama_files

_GROUP = Path("/sys/fs/cgroup")
_RECLAIMABLE = ("inactive_file", "active_file", "slab_reclaimable")


def available_memory() -> int | None:
    """Bytes of main memory that are available without swapping; None if unknown."""
    fields = dict(
        line.split(":", 1) for line in _read(Path("/proc/meminfo")).splitlines() if ":" in line
    )
    words = fields.get("MemAvailable", "").split()
    if not words:
        return None
    free = int(words[0]) << 10
    limit, used = _read(_GROUP / "memory.max"), _read(_GROUP / "memory.current")
    if not (limit.isdecimal() and used.isdecimal()):
        return free
    counts = dict(
        line.split(None, 1) for line in _read(_GROUP / "memory.stat").splitlines() if " " in line
    )
    taken = int(used) - sum(int(counts.get(name, 0)) for name in _RECLAIMABLE)
    return min(free, max(0, int(limit) - max(0, taken)))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


@dataclass(frozen=True)
class AvailableMemory:
    """Free bytes of main and GPU memory.

    `gpu` is None where models stay in main memory, `main` where the system does not report it.
    """

    main: int | None
    gpu: int | None = None

    @property
    def place(self) -> str:
        """The memory that a smith's weights take, in words."""
        return "main memory" if self.gpu is None else "GPU memory"

    @property
    def free(self) -> int | None:
        """Free bytes in that memory."""
        return self.main if self.gpu is None else self.gpu


def free_memory() -> AvailableMemory:
    """The memory that is free now."""
    return AvailableMemory(available_memory(), _gpu_free() if llama_uses_gpu() else None)


def llama_uses_gpu() -> bool:
    """True when the installed llama.cpp ships a CUDA library."""
    return bool(llama_files("libggml-cuda.so*"))


def _gpu_free() -> int | None:
    import pynvml

    from referee.timing.nvml import all_hidden, open_gpu

    if all_hidden():
        return None
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(open_gpu()).free)
    except pynvml.NVMLError:
        return None
