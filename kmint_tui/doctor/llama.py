"""llama.cpp: whether it loads, its version, and whether this build can use a GPU.

No model is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kmint_tui.doctor import gpu
from kmint_tui.doctor.finding import Finding
from kmint_tui.doctor.machine import installed_version

WANTED = "0.3.36"
PARTS = Path(__file__).parents[1] / "smith" / "llama.cmake"
"""The parts of llama.cpp that kmint needs, for its build."""
# Some compilers link the C++ library statically. Its symbols must then stay inside, or those of
# numpy and llama.cpp collide.
CUDA_BUILD = (
    f"-DGGML_CUDA=on -DCMAKE_PROJECT_INCLUDE={PARTS} "
    "-DCMAKE_SHARED_LINKER_FLAGS=-Wl,--exclude-libs,ALL"
)
AMX = "this build's AMX kernels are faulty with quantised weights; kmint does not use them"


def llama() -> Iterator[Finding]:
    """Findings on the wheel's version, GPU offload, and the instruction set that kmint avoids."""
    have = installed_version("llama-cpp-python")
    again = f"pip install llama-cpp-python=={WANTED}"
    if have is None:
        yield Finding("llama.cpp", "fail", "llama-cpp-python is not installed", again)
        return
    try:
        import llama_cpp
    except Exception as error:
        yield Finding("llama.cpp", "fail", f"llama-cpp-python {have} does not load: {error}", again)
        return
    if have != WANTED:
        yield Finding(
            "llama.cpp",
            "fail",
            f"llama-cpp-python {have}; kmint is written for {WANTED}, whose structs differ",
            again,
        )
    else:
        note = f"; {AMX}" if b"AMX_INT8 = 1" in llama_cpp.llama_print_system_info() else ""
        yield Finding("llama.cpp", "ok", f"llama-cpp-python {have}{note}")
    if llama_cpp.llama_supports_gpu_offload():
        yield Finding("offload", "ok", "this build of llama.cpp can put models on the GPU")
    elif gpu.usable():
        flags = f'CMAKE_ARGS="{CUDA_BUILD}"'
        fix = (
            f"install it with a CUDA toolkit: {flags} {again} --no-binary llama-cpp-python "
            "--force-reinstall"
        )
        yield Finding(
            "offload",
            "warn",
            "this build of llama.cpp runs models on the CPU although there is a GPU",
            fix,
        )
    else:
        yield Finding("offload", "ok", "models run on the CPU; there is no GPU to use")
