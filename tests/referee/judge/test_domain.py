"""Where a kernel holds: launchers that refuse, circumstances in which they do something else, and
state, which is still rejected.
"""

from __future__ import annotations

import pytest

from referee.judge import Referee
from referee.verdict import Verdict

KERNEL = """
@triton.jit
def _silu(x_ptr, y_ptr, n, SAVE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, x / (1 + tl.exp(-x)), mask=at < n)

SEEN = []
def launch(x, save=False):
    y = torch.empty_like(x)
    _silu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), save, BLOCK=1024)
    return y

"""
NARROW = (
    KERNEL
    + "def run(x):\n    if x.shape[1] > 20000:\n        raise ValueError('at most 20000 columns')\n    return launch(x)\n"
)
UNLIKE = {
    "gradients": ("return launch(x, x.requires_grad)", "inputs that require gradients"),
    "autocast": (
        "assert not torch.is_autocast_enabled()\n    return launch(x)",
        "torch.is_autocast_enabled",
    ),
    "the default dtype": (
        "return launch(x, torch.empty(1, device=x.device).dtype == torch.float32)",
        "another default dtype",
    ),
}
REJECTED = {
    "a bug is no refusal": "if x.shape[1] > 20000:\n        [][1]\n    return launch(x)",
    "a launcher that refuses nearly all": "if x.shape[1] > 3:\n        raise ValueError('narrow')\n    return launch(x)",
    "one that counts its calls": "SEEN.append(1)\n    return launch(x, len(SEEN) % 2 == 0)",
    "one that counts calls with gradients": "x.requires_grad and SEEN.append(1)\n    return launch(x, len(SEEN) == 1)",
    "one that refuses every other call": "SEEN.append(1)\n    if len(SEEN) % 2:\n        raise ValueError('odd')\n    return launch(x)",
    "one that draws": "import random\n    return launch(x, x.requires_grad and random.random() < 0.5)",
    "a wrong answer where it does not refuse": "if x.shape[1] > 20000:\n        raise ValueError('no')\n"
    "    return launch(x[:1].expand_as(x).contiguous())",
}


def judged(referee: Referee, body: str, *, strict: bool = False) -> Verdict:
    return referee.judge(
        KERNEL + f"def run(x):\n    {body}\n", "silu", level="correct", strict=strict
    )


def test_a_domain_ends_where_the_launcher_refuses(referee: Referee) -> None:
    verdict = referee.judge(NARROW, "silu", level="correct")
    assert verdict.passed, verdict.reason
    assert verdict.holds and verdict.holds.refused and not verdict.host_code
    assert (
        verdict.reason.startswith("holds for ")
        and "ValueError: at most 20000 columns" in verdict.reason
    )
    names = {cell.name for cell in verdict.cells if cell.role != "capability"}
    assert names.isdisjoint(one.case for one in verdict.holds.refused)


def test_strictly_a_kernel_holds_everywhere(referee: Referee) -> None:
    verdict = referee.judge(NARROW, "silu", level="correct", strict=True)
    assert (verdict.verdict, verdict.guard) == (
        "rejected",
        "trace_error",
    ) and "at most 20000 columns" in verdict.reason


@pytest.mark.parametrize("name", UNLIKE)
def test_circumstances_are_named(referee: Referee, name: str) -> None:
    body, words = UNLIKE[name]
    verdict = judged(referee, body)
    assert verdict.passed and verdict.holds, verdict.reason
    assert "does not hold for" in verdict.reason and any(
        words in one for one in verdict.holds.circumstances
    ), verdict.holds
    assert judged(referee, body, strict=True).verdict == "rejected"


@pytest.mark.parametrize("name", REJECTED)
def test_what_is_no_domain_is_rejected(referee: Referee, name: str) -> None:
    verdict = judged(referee, REJECTED[name])
    assert verdict.verdict == "rejected", verdict.reason


def test_host_code_is_a_reservation_and_rejected_strictly(referee: Referee) -> None:
    body = "width = max({1, 2})\n    return launch(x)"
    verdict = judged(referee, body)
    assert verdict.passed and [one.what for one in verdict.host_code] == ["{1, 2}"]
    assert "; host code not vouched for: line 15, {1, 2}" in verdict.reason
    assert judged(referee, body, strict=True).verdict == "rejected"
