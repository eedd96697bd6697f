"""What a file may ask of an address in a trace, and what differs between processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from referee.ops.spec import TensorSpec
from referee.target import Target
from referee.tracing.cell_shape import CellShape
from referee.tracing.tracer import trace_source

SOURCE = """
@triton.jit
def _copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)

def run(x, z):
    y = torch.empty_like(x)
    %s
    _copy[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y
"""
GOOD = [
    "assert x.view(-1).data_ptr() == x.data_ptr()",
    "assert x.data_ptr() % 16 == 0 and x[1:].data_ptr() % 16 != 1",
    "assert x[1:].data_ptr() != x.data_ptr()",
    "assert x[:0].data_ptr() == 0 and x.data_ptr() != 0",
]
BAD = [
    "_copy[(1,)](x, y, x.data_ptr(), BLOCK=64)",
    "_copy[(1,)](x, y, x.data_ptr() - z.data_ptr(), BLOCK=64)",
]


def traced(line: str, folder: Path) -> dict[str, object]:
    cell = CellShape(tuple(TensorSpec(name, (3, 40), "float32", (40, 1), 0) for name in "xz"), 1)
    return trace_source(SOURCE % line, str(folder / "candidate.py"), Target(), [cell])


@pytest.mark.parametrize("line", GOOD)
def test_alignment_and_views_of_one_memory_may_be_asked(line: str, tmp_path: Path) -> None:
    assert "plans" in traced(line, tmp_path), traced(line, tmp_path)


@pytest.mark.parametrize("line", BAD)
def test_what_differs_between_processes_is_refused(line: str, tmp_path: Path) -> None:
    assert "rejection" in traced(line, tmp_path)
