"""Lanes that a load hides without saying what they get: found in the text, NaN in a run of their
own, and told in the verdict.
"""

from __future__ import annotations

import pytest
import torch

from referee import Referee, Verdict
from referee.checks.masked_lanes import CHECK, WORDS, has_masked_lanes
from referee.cpu_path import CpuPath
from referee.interpreter.interpret import Executed, Execution
from referee.plans.plan import LaunchPlan
from referee.sandbox.zygote import Zygote
from referee.verdict import Rejection
from tests.referee.by_version import needs_block_pointers
from tests.referee.judge.interpreting import run
from tests.referee.judge.plans import HEADER, buffers_of, dense, launch
from tests.referee.stand_in import Replayer, Servers, judged

BLOCK = "block = tl.make_block_ptr(x0, (n,), (1,), (0,), (BLOCK,), (0,))"
LOADS = (
    HEADER
    + """
@triton.jit
def kernel(x0, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    {block}
    tl.store(out + at, {load})
"""
)
SILU = """@triton.jit
def _kernel(x_ptr, out_ptr, total, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < total{other}).to(tl.float32)
    {body}
    tl.store(out_ptr + at, x * tl.sigmoid(x){more}, mask=at < total)


def run(x):
    out = torch.empty_like(x)
    _kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out
"""
LEAKS = {"body": "rest = tl.sum(tl.where(at < total, 0.0, x))", "more": " + rest"}
"""Zeros are added up, or whatever the lanes beyond the end hold."""


def silu(other: str = "", body: str = "pass", more: str = "") -> str:
    return SILU.format(other=other, body=body, more=more)


@pytest.mark.parametrize(
    ("load", "has"),
    [
        ("tl.load(p)", False),
        ("tl.load(p, mask=m)", True),
        ("tl.load(p, m)", True),
        ("tl.load(p, mask=None)", False),
        ("tl.load(p, mask=m, other=None)", True),
        ("tl.load(p, mask=m, other=0.0)", False),
        ("tl.load(p, m, 0)", False),
        ("tl.load(p, m, other=0)", False),
        ("tl.load(b, boundary_check=(0,))", True),
        ("tl.load(b, boundary_check=(0,), padding_option='zero')", False),
        ("tl.store(p, 1, mask=m)", False),
        ("tl.sum(tl.load(p, mask=m))", True),
    ],
)
def test_loads_with_such_lanes_are_found(load: str, has: bool) -> None:
    assert has_masked_lanes(f"@triton.jit\ndef kernel(p, b, m):\n    x = {load}\n") is has


def loaded(zygote: Zygote, load: str, dtype: str, *, open_lanes: bool) -> torch.Tensor:
    """What eight lanes get of five numbers."""
    x, out = dense(0, (5,), dtype), dense(1, (8,), dtype)
    plan = LaunchPlan(
        buffers_of(x, out, inputs=1),
        (x,),
        (launch("kernel", (1, 1, 1), {"BLOCK": 8}, x0=x, out=out, n=5),),
        (out,),
    )
    numbers = torch.ones(5, dtype=getattr(torch, dtype))
    block = BLOCK if "block" in load else "pass"
    (answer,) = run(
        zygote,
        LOADS.format(block=block, load=load),
        Execution(plan, (numbers,), open_lanes=open_lanes),
    )
    assert isinstance(answer, Executed), answer
    assert bool((answer.outputs[0][:5] == 1).all())
    return answer.outputs[0][5:]


@pytest.mark.parametrize(
    "load",
    [
        "tl.load(x0 + at, mask=at < n)",
        pytest.param("tl.load(block, boundary_check=(0,))", marks=needs_block_pointers),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "int8", "bool"])
def test_hidden_lanes_are_nan_all_ones_or_zero(interpreter: Zygote, load: str, dtype: str) -> None:
    assert not loaded(interpreter, load, dtype, open_lanes=False).any()
    lanes = loaded(interpreter, load, dtype, open_lanes=True)
    assert bool(
        (lanes.isnan() if lanes.is_floating_point() else lanes == torch.full_like(lanes, -1)).all()
    ), lanes


def test_lanes_that_are_given_something_keep_it(interpreter: Zygote) -> None:
    lanes = loaded(
        interpreter, "tl.load(x0 + at, mask=at < n, other=3.0)", "float32", open_lanes=True
    )
    assert lanes.tolist() == [3.0, 3.0, 3.0]


def told(verdict: Verdict) -> str | None:
    assert verdict.verdict == "correct", verdict.reason
    return {check.name: check.status for check in verdict.checks}.get(CHECK)


def test_a_kernel_that_counts_on_zeros_is_correct_and_says_so(referee: Referee) -> None:
    verdict = referee.judge(silu(**LEAKS), "silu")
    assert told(verdict) == "fail" and verdict.reason.endswith(f"; {WORDS}")
    (check,) = (check for check in verdict.checks if check.name == CHECK)
    assert "elements wrong" in check.detail and check.detail.endswith("give `other`")


def test_hidden_lanes_without_effect_are_reported_if_any(referee: Referee) -> None:
    verdict = referee.judge(silu(), "silu")
    assert told(verdict) == "pass" and WORDS not in verdict.reason
    verdict = referee.judge(silu(other=", other=0.0", **LEAKS), "silu")
    assert told(verdict) is None and WORDS not in verdict.reason


def test_where_the_interpreter_takes_too_long_nothing_is_said(
    referee: Referee, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, slow = CpuPath.execute, Rejection("correct", "timeout", "too slow")
    monkeypatch.setattr(
        CpuPath,
        "execute",
        lambda path, runs, cancel=None: (
            [slow] if any(run.open_lanes for run in runs) else usual(path, runs, cancel)
        ),
    )
    verdict = referee.judge(silu(**LEAKS), "silu")
    assert told(verdict) == "skipped" and WORDS not in verdict.reason


@pytest.mark.parametrize(
    ("source", "status"),
    [(silu(**LEAKS), "fail"), (silu(), "pass"), (silu(other=", other=0.0"), None)],
)
def test_it_is_told_beside_a_replay_too(servers: Servers, source: str, status: str | None) -> None:
    report, found = judged(servers, source, Replayer())
    assert isinstance(found, Verdict), found
    assert told(found) == status and (WORDS in found.reason) is (status == "fail")
    assert (report.checks[CHECK].status if status else report.checks.get(CHECK)) == status
