"""A five-line kernel that the referee really traces, compiles and runs."""

from __future__ import annotations

from collections.abc import Iterator

from kmint_tui.doctor.finding import Finding
from referee.verdict import Verdict

OP = "relu2"
SOURCE = """\
@triton.jit
def square_positive(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.maximum(tl.load(x_ptr + at, mask=at < count, other=0.0).to(tl.float32), 0.0)
    tl.store(y_ptr + at, (x * x).to(y_ptr.dtype.element_ty), mask=at < count)


def run(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    square_positive[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""


def compiled() -> Iterator[Finding]:
    """Findings on tracing and compiling without a GPU; on a machine without one also on
    interpreting.
    """
    from referee.gpu.replayer import Replayer
    from referee.judge import Referee

    with Referee(mode="interpret") as referee:
        verdict = referee.judge(SOURCE, OP, level="compile")
        target = verdict.environment.get("target", "?")
        yield _finding(
            "kernel",
            verdict,
            "unsure",
            f"traced and compiled for {target} in {sum(verdict.seconds.values()):.1f} s",
        )
        if Replayer.available() is not None:
            verdict = referee.judge(SOURCE, OP, level="correct")
            yield _finding(
                "kernel run",
                verdict,
                "correct",
                f"interpreted: {_agreeing(verdict)} cases agree with float64",
            )


def replayed() -> Iterator[Finding]:
    """Findings on compiling for the GPU here, on replay, and on the comparison with float64."""
    from referee.judge import Referee

    with Referee(mode="replay") as referee:
        verdict = referee.judge(SOURCE, OP, level="correct")
        device = verdict.environment.get("device", "the GPU")
        yield _finding(
            "kernel run",
            verdict,
            "correct",
            f"replayed on {device}: {_agreeing(verdict)} cases agree with float64",
        )


def _agreeing(verdict: Verdict) -> int:
    return sum(cell.status == "pass" for cell in verdict.cells)


def _finding(name: str, verdict: Verdict, wanted: str, good: str) -> Finding:
    if verdict.verdict == wanted:
        return Finding(name, "ok", good)
    return Finding(
        name,
        "fail",
        f"{verdict.stage}: {verdict.reason}",
        "see the other findings; `kmint selftest` shows more",
    )
