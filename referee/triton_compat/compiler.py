"""Triton's compiler: its set-up in a worker, failures of its tools, and its compiled kernels."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import dataclass
from typing import Any

# Number of kernel parameters that the compiler appends: pointers to global and profile scratch.
HIDDEN_POINTERS = 2
# Type in a signature of a parameter that is compiled into the kernel and not passed.
CONSTANT = "constexpr"


def prepare_compiler(ptxas_version: str, cache: str) -> None:
    """Sets the cache directory and ptxas's version of this process's compiler, and skips hashing
    its installation.

    The hash only names cache entries; the cache is private and empty, so no name can be stale.
    """
    from triton import knobs
    from triton.runtime import cache as cache_module

    cache_module.triton_key = lambda: "private"
    knobs.NvidiaTool.from_path = staticmethod(lambda path: knobs.NvidiaTool(path, ptxas_version))
    knobs.nvidia.mock_ptx_version = ptxas_version
    knobs.nvidia.dump_ptxas_log = True
    knobs.cache.dir = cache


def tool_was_ended(error: BaseException) -> bool:
    """Whether a tool of the compiler (ptxas) was killed from outside."""
    return _tool_ended_by(error, signal.SIGKILL, signal.SIGTERM)


def tool_ran_out_of_time(error: BaseException) -> bool:
    """Whether a tool of the compiler (ptxas) used up its processor time."""
    return _tool_ended_by(error, signal.SIGXCPU)


def _tool_ended_by(error: BaseException, *signals: signal.Signals) -> bool:
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    return any(
        isinstance(cause, subprocess.CalledProcessError) and -cause.returncode in signals
        for cause in causes
    )


@dataclass(frozen=True)
class Compiled:
    """One of Triton's compiled kernels. `signature` holds (name, type) in parameter order."""

    name: str
    image: bytes
    ptx: str
    ttgir: str
    signature: tuple[tuple[str, Any], ...]
    shared: int
    num_warps: int
    needs: tuple[str, ...]


def read_compiled(kernel: Any) -> Compiled:
    """The parts of a CompiledKernel that a launch needs; `needs` names what it must not have."""
    meta = kernel.metadata
    needs = []
    for field, what in (
        ("global_scratch_size", "global scratch memory"),
        ("profile_scratch_size", "profile scratch memory"),
        ("tmem_size", "tensor memory"),
    ):
        if getattr(meta, field, 0):
            needs.append(what)
    for field, what in (
        ("launch_cooperative_grid", "a cooperative grid"),
        ("launch_pdl", "programmatic dependent launch"),
    ):
        if getattr(meta, field, False):
            needs.append(what)
    if meta.num_ctas != 1:
        needs.append("block clusters")
    if getattr(meta, "tensordesc_meta", None):
        needs.append("tensor descriptors")
    return Compiled(
        name=meta.name,
        image=bytes(kernel.asm["cubin"]),
        ptx=kernel.asm["ptx"],
        ttgir=kernel.asm["ttgir"],
        signature=tuple(kernel.src.signature.items()),
        needs=tuple(needs), shared=meta.shared, num_warps=meta.num_warps,
    )  # fmt: skip
