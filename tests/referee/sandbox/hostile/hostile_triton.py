"""What the judge's workers do with torch and triton, in small."""

import importlib
import json
import os
import sys
from typing import Any

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.exp(tl.load(x + offsets, mask=offsets < n)), mask=offsets < n)
"""


def _load(scratch: str) -> Any:
    with open(os.path.join(scratch, "made.py"), "w") as file:
        file.write(KERNEL)
    sys.path.insert(0, scratch)
    return importlib.import_module("made").kernel


def compile_kernel(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Compile to a cubin, which executes ptxas."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    compiled = triton.compile(
        ASTSource(_load(scratch), signature, {(3,): 256}), target=GPUTarget("cuda", 90, 32)
    )
    return bytes(compiled.asm["cubin"][:4])


def interpret_kernel(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Run in Triton's interpreter."""
    import torch

    x = torch.zeros(10)
    y = torch.empty_like(x)
    _load(scratch)[(1,)](x, y, 10, BLOCK=16)
    return json.dumps(y.tolist()).encode()


def look_around(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """What a job with the real preload sees: loaded modules, GPUs, mode."""
    import torch

    return json.dumps(
        {
            "loaded": [
                name for name in ("torch", "triton", "triton.language") if name in sys.modules
            ],
            "cuda": torch.cuda.is_available(),
            "interpret": os.environ.get("TRITON_INTERPRET"),
        }
    ).encode()
