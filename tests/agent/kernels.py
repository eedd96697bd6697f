"""Kernels for softmax and their faults, for the tests of the agent's door."""

from __future__ import annotations

from tests.save.test_host_code import GOOD

__all__ = ["FLOAT32", "GOOD", "HALF", "MISNAMED", "UNMASKED", "WRONG"]

WRONG = GOOD.replace("x / tl.sum(x, axis=0)", "x")
MISNAMED = GOOD.replace("def run(x):", "def softmax(x):")
UNMASKED = GOOD.replace("x / tl.sum(x, axis=0), mask=cols < N)", "x / tl.sum(x, axis=0))")
FLOAT32 = GOOD.replace(
    "torch.empty_like(x)", "torch.empty((M, N), dtype=torch.float32, device=x.device)"
)
HALF = GOOD.replace(".to(tl.float32)", "")
