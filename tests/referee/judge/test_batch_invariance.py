"""Bits of rows that depend on the batch: reported always, and a rejection where that is asked for."""

from __future__ import annotations

from referee import Referee, Verdict, ops
from referee.checks.batch_invariance import CHECK, parts_of
from referee.ops.cells import contiguous_strides
from referee.problem import required
from referee.selftest.corpus import load as specimens

L2NORM = """
@triton.jit
def _kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        x = tl.load(x_ptr + row * N + start + cols, mask=start + cols < N, other=0.0).to(tl.float32)
        acc += x * x
    r = tl.rsqrt(tl.sum(acc, axis=0) + 1e-6)
    for start in range(0, N, BLOCK):
        x = tl.load(x_ptr + row * N + start + cols, mask=start + cols < N, other=0.0).to(tl.float32)
        tl.store(out_ptr + row * N + start + cols, x * r, mask=start + cols < N)


def run(x):
    M, N = x.shape
    out = torch.empty_like(x)
    _kernel[(M,)](x, out, N, BLOCK={})
    return out
"""


def status(verdict: Verdict) -> str:
    return next(check.status for check in verdict.checks if check.name == CHECK)


def test_blocks_chosen_by_row_count_are_reported_or_rejected(referee: Referee) -> None:
    source = L2NORM.format("1024 if M > 2 else 256")
    told = referee.judge(source, "l2norm", level="correct", seed=7)
    assert told.passed and status(told) == "fail", told.reason
    asked = referee.judge(source, "l2norm", level="correct", seed=7, batch_invariant=True)
    assert (asked.verdict, asked.guard) == ("rejected", CHECK)
    assert "batch invariance is required" in asked.reason


def test_one_block_for_all_is_the_same_in_every_batch(referee: Referee) -> None:
    verdict = referee.judge(L2NORM.format(1024), "l2norm", level="correct", batch_invariant=True)
    assert verdict.passed and status(verdict) == "pass", verdict.reason


def test_of_atomics_nothing_is_known(referee: Referee) -> None:
    (kernel,) = (one for one in specimens("gold") if one.name == "atomic_l2norm")
    verdict = referee.judge(kernel.source, kernel.op, level="correct")
    assert verdict.passed and status(verdict) == "skipped", verdict.reason


def test_parts_are_a_row_and_a_few_of_a_case_in_every_dtype() -> None:
    cells = required(ops.cells(ops.get("cross_entropy"), profile="cpu"))
    parts = parts_of(cells, 5, long=False)
    assert parts == parts_of(cells, 5, long=False)
    assert {part.whole.outputs[0].dtype for part in parts} == {"float32", "float16", "bfloat16"}
    for part in parts:
        rows, all_rows = part.cell.inputs[0].shape[0], part.whole.inputs[0].shape[0]
        assert 1 <= rows < all_rows and len(set(part.places)) == len(part.places)
        assert all(0 <= place <= all_rows - rows for place in part.places)
        assert [spec.shape[0] for spec in (*part.cell.inputs, *part.cell.outputs)] == [rows] * 3
        assert all(spec.strides == contiguous_strides(spec.shape) for spec in part.cell.inputs)
    longest = max(part.whole.inputs[0].shape[1] for part in parts_of(cells, 5, long=True))
    assert longest == 33_001
