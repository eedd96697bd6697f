"""The compiler in use, without importing it: Triton's version, and the ptxas that it ships."""

from __future__ import annotations

import functools
import re
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from referee.target import Target
from referee.triton_version import check_triton

# Triton's NVIDIA backend assembles for these and newer architectures with the second ptxas.
BLACKWELL = 100


class ToolchainError(RuntimeError):
    """Kernels cannot be compiled on this host; the message says why."""


@dataclass(frozen=True)
class Toolchain:
    """What compiles for a target. `identity` changes whenever the same kernel could come out differently."""

    triton: str
    ptxas: str
    ptxas_version: str

    @property
    def identity(self) -> str:
        """Versions, for cache keys and reports."""
        return f"triton {self.triton}, ptxas {self.ptxas_version}"


def toolchain(target: Target) -> Toolchain:
    """The compiler for a target. Raises ToolchainError, or UnknownTriton for a version that is not supported."""
    triton = check_triton()
    spec = find_spec("triton")
    if spec is None or spec.origin is None:
        raise ToolchainError("triton is not installed")
    name = "ptxas-blackwell" if target.arch >= BLACKWELL else "ptxas"
    path = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / name
    if not path.is_file():
        raise ToolchainError(f"triton was installed without {name}")
    return Toolchain(triton, str(path), _ptxas_version(str(path)))


@functools.lru_cache
def _ptxas_version(path: str) -> str:
    try:
        told = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(f"ptxas cannot be run: {error}") from error
    match = re.search(r"release (\d+\.\d+)", told)
    if match is None:
        raise ToolchainError("ptxas does not tell its version")
    return match[1]
