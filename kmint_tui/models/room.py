"""How much memory there is for a smith and its referee, asked without loading torch, CUDA or llama.cpp.

GPU memory is NVML's, and counts only where the installed llama.cpp was built for CUDA; only the first visible GPU is looked at.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kmint_tui.memory import available_memory

_LIBRARY = "libnvidia-ml.so.1"


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


def llama_uses_gpu() -> bool:
    """Whether the installed llama.cpp was built for CUDA, told by its libraries."""
    spec = find_spec("llama_cpp")
    folders = [Path(place) / "lib" for place in (spec.submodule_search_locations or ())] if spec else []
    return any(True for folder in folders for _ in folder.glob("libggml-cuda.so*"))


class _MemoryInfo(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def _gpu_free() -> int | None:
    from referee.measuring.clocks import find

    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return None
    handle, info = ctypes.c_void_p(), _MemoryInfo()
    try:
        library = ctypes.CDLL(_LIBRARY)
        if library.nvmlInit_v2() or find(library, handle):
            return None
        return None if library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(info)) else int(info.free)
    except (OSError, AttributeError):
        return None
