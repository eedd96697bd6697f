"""Autotuned kernels at their first call: what Triton's own autotuner does to the answer there is
what the referee says of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from referee import ops
from referee.judge import Referee
from referee.ops.fresh_cells import fresh_cells
from referee.ops.spec import Cell
from referee.ops.values import draw
from referee.plans.autotune import as_first_call_rejection, autotune_first_call
from referee.plans.plan import Buffer, Copy, Fill, Launch
from referee.verdict import Rejection
from tests.referee.plan.example import OUT, PLAN, SCRATCH

KERNEL = """
@triton.autotune(configs=[{configs}], key=["total"]{options})
@triton.jit
def _kernel(x_ptr, out_ptr, total, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < total
    {body}


def run(x):
    out = {out}
    _kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out
"""
TWO = 'triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 512})'
SAME = 'triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 256})'
ONE = 'triton.Config({"BLOCK": 256})'
WRITES = """x = tl.load(x_ptr + at, mask=mask).to(tl.float32)
    tl.store(out_ptr + at, x * tl.sigmoid(x), mask=mask)"""
ADDS = """x = tl.load(x_ptr + at, mask=mask).to(tl.float32)
    before = tl.load(out_ptr + at, mask=mask).to(tl.float32)
    tl.store(out_ptr + at, before + x * tl.sigmoid(x), mask=mask)"""
# The interpreter of Triton 3.9 refuses a mask of which one operand is a comparison of numbers.
ADDS_IF_SMALL = """x = tl.load(x_ptr + at, mask=mask).to(tl.float32)
    small = mask & (tl.zeros_like(at) + total < 2000)
    before = tl.load(out_ptr + at, mask=small, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, before + x * tl.sigmoid(x), mask=mask)"""
IN_PLACE = """x = tl.load(out_ptr + at, mask=mask).to(tl.float32)
    tl.store(out_ptr + at, x * tl.sigmoid(x), mask=mask)"""


def kernel(body: str, out: str, options: str = "", configs: str = TWO) -> str:
    return KERNEL.format(configs=configs, options=options, body=body, out=out)


EMPTY, ZEROS, CLONE = "torch.empty_like(x)", "torch.zeros_like(x)", "x.clone()"
# What becomes of each: the answer is right at the first call, or wrong there, or Triton would spoil
# the caller's tensor.
CASES = {
    "writes": ("right", kernel(WRITES, EMPTY)),
    "writes, zeroed without need": ("right", kernel(WRITES, EMPTY, ', reset_to_zero=["out_ptr"]')),
    "writes, restores its input": ("right", kernel(WRITES, EMPTY, ', restore_value=["x_ptr"]')),
    "adds to zeros": ("wrong", kernel(ADDS, ZEROS)),
    "adds to zeros, if the tensor is small": ("wrong", kernel(ADDS_IF_SMALL, ZEROS)),
    "adds to zeros, the same configuration twice": ("wrong", kernel(ADDS, ZEROS, configs=SAME)),
    "adds to zeros, one configuration": ("right", kernel(ADDS, ZEROS, configs=ONE)),
    "adds to zeros that are zeroed": ("right", kernel(ADDS, ZEROS, ', reset_to_zero=["out_ptr"]')),
    "adds to zeros that are restored": (
        "right",
        kernel(ADDS, ZEROS, ', restore_value=["out_ptr"]'),
    ),
    "in place": ("wrong", kernel(IN_PLACE, CLONE)),
    "in place, restored": ("right", kernel(IN_PLACE, CLONE, ', restore_value=["out_ptr"]')),
    "in place, zeroed": ("wrong", kernel(IN_PLACE, CLONE, ', reset_to_zero=["out_ptr"]')),
    "zeroes its input": ("spoilt", kernel(WRITES, EMPTY, ', reset_to_zero=["x_ptr"]')),
    "would zero its input, one configuration": (
        "right",
        kernel(WRITES, EMPTY, ', reset_to_zero=["x_ptr"]', ONE),
    ),
}
# With this seed the cell of the longest rows holds large values only, which another SiLU leaves as
# they are.
HIDES_IT = 44
REAL = """
import json, sys
import torch, triton, triton.language as tl

def twice(call, quantiles):
    call(); call()
    return [1.0, 1.0, 1.0]

found = {}
for name, source in json.load(sys.stdin).items():
    path = f"{sys.argv[1]}/{len(found)}.py"
    open(path, "w").write(source.replace('key=["total"]', 'key=["total"], do_bench=twice'))
    space = {"torch": torch, "triton": triton, "tl": tl, "twice": twice}
    exec(compile(open(path).read(), path, "exec"), space)
    x = torch.randn(7, 100)
    wanted, before = torch.nn.functional.silu(x), x.clone()
    right = torch.allclose(space["run"](x), wanted, atol=1e-5)
    found[name] = "spoilt" if not torch.equal(x, before) else "right" if right else "wrong"
print(json.dumps(found))
"""


def test_tritons_autotuner_does_the_same_at_the_first_call(tmp_path: Path) -> None:
    sources = json.dumps({name: source for name, (_, source) in CASES.items()})
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", REAL, str(tmp_path)], input=sources, text=True, capture_output=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {name: became for name, (became, _) in CASES.items()}


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_the_referee_describes_the_first_call_as_triton_does(referee: Referee, name: str) -> None:
    became, source = CASES[name]
    verdict = referee.judge(source, "silu", level="correct")
    if became == "right":
        assert verdict.passed, verdict.reason
        return
    assert (verdict.verdict, verdict.guard) == ("rejected", "autotune"), verdict
    assert verdict.stage == ("trace" if became == "spoilt" else "correct")
    told = (
        "Triton would zero"
        if became == "spoilt"
        else "Triton tries every configuration on the same memory"
    )
    assert "reset_to_zero" in verdict.reason and told in verdict.reason


def test_a_first_call_is_reported_where_there_is_one(referee: Referee) -> None:
    tuned, plain = (
        referee.judge(CASES[name][1], "silu", level="correct")
        for name in ("writes", "would zero its input, one configuration")
    )
    assert [check.status for check in tuned.checks if check.name == "autotune"] == ["pass"]
    assert not [check for check in plain.checks if check.name == "autotune"]


@pytest.mark.parametrize(
    ("options", "guard", "words"),
    [
        (", pre_hook=lambda *a, **k: None", "launch_feature", "pre_hook"),
        (", post_hook=lambda *a, **k: None", "launch_feature", "post_hook"),
        (', reset_to_zero=["total"]', "trace_error", "`total` is none"),
        # From 3.9 on Triton says it itself, in its own words.
        (', restore_value=["nothing"]', "trace_error", "nothing"),
    ],
)
def test_hooks_and_names_that_name_nothing_are_refused_by_name(
    referee: Referee, options: str, guard: str, words: str
) -> None:
    verdict = referee.judge(kernel(WRITES, EMPTY, options), "silu", level="correct")
    assert (verdict.stage, verdict.guard) == ("trace", guard) and words in verdict.reason, (
        verdict.reason
    )


def test_the_steps_of_a_first_call() -> None:
    made = autotune_first_call(PLAN, {2: [0, 1], 3: [0]}, {2: 1})
    assert (
        made is not None and made.plan.inputs == PLAN.inputs and made.plan.outputs == PLAN.outputs
    )
    kept = made.plan.steps[2:]
    launch = PLAN.steps[2]
    assert isinstance(launch, Launch)
    one, other = (Launch("k", (config,)) for config in launch.configs)
    assert made.plan.buffers == (*PLAN.buffers, Buffer(4 * 3 * 4))
    shown = [type(step).__name__ if isinstance(step, Copy | Fill) else step for step in kept]
    assert shown == [
        "Fill",
        "Copy",
        one,
        "Copy",
        "Fill",
        "Copy",
        other,
        "Copy",
        "Fill",
        other,
        PLAN.steps[3],
    ]
    fills = [step.target for step in kept if isinstance(step, Fill)]
    copies = [step for step in kept if isinstance(step, Copy)]
    assert (
        fills == [OUT] * 3
        and [step.source for step in copies[::2]] == [SCRATCH] * 2
        and [step.target for step in copies[1::2]] == [SCRATCH] * 2
    )
    assert made.origin == {4: (2, 0), 8: (2, 1), 11: (2, 1), 12: (3, 0)}
    assert (
        autotune_first_call(
            type(PLAN)(PLAN.buffers, PLAN.inputs, PLAN.steps[:2], PLAN.outputs), {}, {}
        )
        is None
    )


def test_what_is_not_of_the_answer_keeps_its_guard() -> None:
    stray = Rejection("correct", "out_of_bounds", "at x: too far")
    assert as_first_call_rejection(stray) is stray
    assert (
        as_first_call_rejection(Rejection("honest", "not_deterministic", "at x: bits")).guard
        == "autotune"
    )


def longest_rows(seed: int) -> Cell:
    silu = ops.get("silu")
    return max(
        (*ops.cells(silu, profile="gpu"), *fresh_cells(silu, seed, gpu=True)),
        key=lambda cell: cell.inputs[0].shape[-1],
    )


def test_some_cells_do_not_depend_on_a_spoilt_first_call() -> None:
    cell = longest_rows(HIDES_IT)
    (x,) = (tensor.double() for tensor in draw(cell, HIDES_IT))
    silu = torch.nn.functional.silu
    assert cell.name.startswith("f16") and (silu(silu(silu(x))) - silu(x)).abs().max() < 1e-5


@pytest.mark.gpu
def test_on_a_gpu_too_first_calls_are_rehearsed() -> None:
    names = (
        "writes",
        "adds to zeros",
        "adds to zeros, if the tensor is small",
        "adds to zeros that are zeroed",
    )
    with Referee(mode="replay") as judge:
        for name in (*names, "in place", "in place, restored", "in place, zeroed"):
            became, source = CASES[name]
            verdict = judge.judge(source, "silu", level="correct", seed=HIDES_IT)
            assert (verdict.passed, verdict.guard) == (
                (True, None) if became == "right" else (False, "autotune")
            ), (name, verdict.reason)
