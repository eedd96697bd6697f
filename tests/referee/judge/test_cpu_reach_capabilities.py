"""Capabilities on the CPU path: gaps, offsets, many rows and fully masked rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from referee import Referee
from referee.concurrency import CancelToken
from referee.cpu_path import CpuPath
from referee.interpreter.interpret import Executed, Execution
from referee.verdict import Rejection
from tests.sampling import repeats

PADDED = """@triton.jit
def _kernel(x_ptr, out_ptr, stride, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < N, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * N + cols, x * tl.sigmoid(x), mask=cols < N)


def run(x):
    M, N = x.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    {host}
    _kernel[(M,)](x, out, stride, N, BLOCK=triton.next_power_of_2(N))
    return out
"""
GAPS = {
    "padded": "stride = N if x.is_contiguous() else N + 3",
    "padded-aligned": "stride = N if x.stride(0) % 2 == 0 and x.stride(0) > N else x.stride(0)",
}


@pytest.mark.parametrize("badge", GAPS)
def test_gaps_and_offsets_cannot_be_known_beforehand(referee: Referee, badge: str) -> None:
    verdict = referee.judge(PADDED.format(host=GAPS[badge]), "silu", seed=1)
    lost = [cell.name for cell in verdict.cells if cell.status == "fail"]
    assert verdict.verdict == "correct" and f"f32-3x1000-{badge}-x1" in lost, (verdict.reason, lost)
    assert all("padded" in name for name in lost), lost
    right = referee.judge(PADDED.format(host="stride = x.stride(0)"), "silu", seed=1)
    assert right.verdict == "correct" and all(cell.status == "pass" for cell in right.cells), (
        right.reason
    )


def test_what_is_behind_a_lost_badge_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    usual = CpuPath.execute

    def counted(
        path: CpuPath, executions: Sequence[Execution], cancel: CancelToken | None = None
    ) -> list[Executed | Rejection]:
        asked.append(len(executions))
        return usual(path, executions, cancel)

    monkeypatch.setattr(CpuPath, "execute", counted)
    found = {}
    for host in ("stride = x.stride(0)", "stride = N"):
        asked.clear()
        # Kernels of one text are run once by one referee.
        with Referee(mode="interpret") as referee:
            verdict = referee.judge(PADDED.format(host=host), "silu", seed=5)
        found[host] = (len(asked), sum(asked), [cell.name for cell in verdict.cells])
    # Several badges are lost by the second, each in its place.
    assert found["stride = x.stride(0)"] == found["stride = N"]
    assert [cell.status for cell in verdict.cells if "-padded-" in cell.name].count("fail") > 3
    assert all(cell.status == "pass" for cell in verdict.cells if "-padded-" not in cell.name)


HEADS = """@triton.jit
def _kernel(x_ptr, w_ptr, cos_ptr, sin_ptr, out_ptr, N, count, BLOCK: tl.constexpr):
    base = tl.program_id(0) * N
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    other = tl.where(cols < N // 2, cols + N // 2, cols - N // 2)
    sign = tl.where(cols < N // 2, -1.0, 1.0)
    x = tl.load(x_ptr + base + cols, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / count + 1e-6)
    x = x * rstd * tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    turned = tl.load(x_ptr + base + other, mask=mask, other=0.0).to(tl.float32) * rstd
    turned = sign * turned * tl.load(w_ptr + other, mask=mask, other=0.0).to(tl.float32)
    cos = tl.load(cos_ptr + base + cols, mask=mask, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + base + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + base + cols, x * cos + turned * sin, mask=mask)


def run(x, w, cos, sin):
    M, N = x.shape
    out = torch.empty_like(x)
    BLOCK = triton.next_power_of_2(N)
    _kernel[(M,)](x, w, cos, sin, out, N, {count}, BLOCK=BLOCK)
    return out
"""
CLEANED = """@triton.jit
def _kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr, CLEAN: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0).to(tl.float32)
    if CLEAN:
        x = tl.where(x == x, x, 0.0)
    tl.store(out_ptr + row * N + cols, x * tl.sigmoid(x), mask=cols < N)


def run(x):
    M, N = x.shape
    x = x.contiguous()
    out = torch.empty_like(x)
    _kernel[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N), CLEAN={clean})
    return out
"""
AT_MANY_ROWS = {
    "padded": (
        "silu",
        PADDED,
        {"host": "stride = x.stride(0)"},
        {"host": "stride = x.stride(0) if M < 256 else N"},
    ),
    "nonfinite": ("silu", CLEANED, {"clean": "False"}, {"clean": "M >= 256"}),
    "head80": ("qknorm_rope", HEADS, {"count": "N"}, {"count": "N if M < 256 else BLOCK"}),
}


@pytest.mark.parametrize("badge", AT_MANY_ROWS)
def test_a_badge_that_is_lost_at_many_rows_only_is_lost(referee: Referee, badge: str) -> None:
    op, text, right, wrong = AT_MANY_ROWS[badge]
    for seed in repeats(1, 3):
        verdict = referee.judge(text.format(**wrong), op, seed=seed)
        lost = [
            cell.name
            for cell in verdict.cells
            if f"-{badge}-" in cell.name and cell.status == "fail"
        ]
        rows = [int(name.split("-")[1].partition("x")[0]) for name in lost]
        assert verdict.verdict == "correct" and min(rows, default=0) > 256, (verdict.reason, lost)
    verdict = referee.judge(text.format(**right), op, seed=0)
    kept = [cell.status for cell in verdict.cells if f"-{badge}-" in cell.name]
    assert verdict.verdict == "correct" and set(kept) == {"pass"}, (verdict.reason, kept)


MASKED = """@triton.jit
def _kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + cols, mask=cols < N, other={other}).to(tl.float32)
    m = tl.max(x, axis=0)
    {answer}
    tl.store(out_ptr + row * N + cols, y, mask=cols < N)


def run(x):
    M, N = x.shape
    x = x.contiguous()
    out = torch.empty_like(x)
    _kernel[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N))
    return out
"""
DIVIDED = "e = tl.exp(x - m)\n    y = e / tl.sum(e, axis=0)"
BY_LOGARITHM = "y = tl.exp(x - (m + tl.log(tl.sum(tl.exp(x - m), axis=0))))"


@pytest.mark.parametrize(
    ("other", "answer", "kept"),
    [
        ("-float('inf')", DIVIDED, True),
        ("-1e30", DIVIDED, False),
        ("-float('inf')", BY_LOGARITHM, False),
    ],
)
def test_a_fully_masked_row_is_uniform_or_the_capability_is_lost(
    referee: Referee, other: str, answer: str, kept: bool
) -> None:
    verdict = referee.judge(MASKED.format(other=other, answer=answer), "softmax", seed=4)
    (found,) = (
        cell for cell in verdict.cells if cell.name.startswith("f32-") and "masked" in cell.name
    )
    assert verdict.verdict == "correct" and (found.status == "pass") == kept, (
        verdict.reason,
        found,
    )
