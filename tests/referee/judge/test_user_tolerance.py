"""What is right and what is wrong by a user's reference: wrong answers that its examples hide,
right ones that round in another way.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from referee.answers.tolerance import expectations
from tests.referee.own_reference import Answer, rejecting, task
from tests.sampling import repeats

SEEDS = repeats(4, 10)

MASK = "torch.ones(32, 32, dtype=torch.bool).tril()"
WHERE = "torch.where(torch.ones(16, 16).tril() > 0, 0.0, {})"
SOME = "torch.rand(16, 100) > 0.7"
CENTRED = "(x - x.mean(-1, keepdim=True)).masked_fill(m, {})"
SCORES = f"(s := {CENTRED.format(-1e9)}, torch.softmax(s, -1))"
AGES = "torch.randint(0, 100, (8, 128)).float()"
BUCKETS = "(x >= 18.0).to(torch.int64) + (x >= 65.0).to(torch.int64)"
BRIGHT = "(k := torch.where(x >= 128.0, x, 0.0)) / k.sum(-1, keepdim=True).clamp(min=1.0)"
STATS = "torch.stack([x.mean(-1), x.square().sum(-1)], -1)"
ATTENTION = "torch.softmax(q @ k.transpose(-1, -2) * 0.25 + b, -1) @ v"
CAUSAL = "*(torch.randn(2, 64, 16) for _ in range(3)), torch.full((64, 64), -1e9).triu(1)"


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("arguments", "body", "inputs", "wrong"),
    [
        # A large neighbour in the row excuses nothing where columns are on their own.
        ("x, m", "(x * 0.125).masked_fill(~m, -1e9)", f"torch.randn(4, 32, 32), {MASK}",
         lambda x, m: torch.where(m, 0.0, -1e9).expand(x.shape)),
        ("x, m", "x.masked_fill(~m, torch.finfo(x.dtype).min)", f"torch.randn(4, 32, 32), {MASK}",
         lambda x, m: torch.full_like(x, 12345.0)),
        ("x, w", "x * x * x * w", "torch.randn(16, 128, dtype=torch.bfloat16), torch.randn(128, dtype=torch.bfloat16)",
         lambda x, w: _small_ones_dropped(x.float() ** 3 * w.float()).bfloat16()),
        # Nor where they are not, if it is a number that the mask fills in.
        ("x, m", CENTRED.format(-1e9), f"torch.randn(16, 100), {SOME}", lambda x, m: (x * 0.5 + 3.0).masked_fill(m, -1e9)),
        ("x, m", CENTRED.format(-1e9), f"torch.randn(16, 100).bfloat16(), {SOME}", lambda x, m: (x * 0.5 + 3.0).masked_fill(m, -1e9)),
        ("x, m", SCORES, f"torch.randn(16, 100), {SOME}",
         lambda x, m: (torch.full_like(x, 7.0).masked_fill(m, -1e9), torch.softmax(x.masked_fill(m, -1e9), -1))),
        # What the example hides: signs, masks, the values themselves.
        ("x, w", "F.gelu(torch.relu(x)) * w", "torch.rand(16, 64), torch.rand(64)", lambda x, w: torch.nn.functional.gelu(x) * w),
        ("x, b", "x + b", "torch.randn(16, 64), torch.zeros(64)", lambda x, b: x + torch.relu(b)),
        ("x, m", "x.masked_fill(m, 0.0)", "torch.randn(8, 64), torch.zeros(8, 64, dtype=torch.bool)", lambda x, m: x),
        ("x, m", "x + m", "torch.randn(4, 16, 16), " + WHERE.format("-torch.inf"), lambda x, m: x + m.abs()),
        ("x, m", "torch.softmax(x + m, -1)", f"torch.randn(4, 16, 16), {WHERE.format(-1e9)}",
         lambda x, m: torch.softmax(m, -1).expand(x.shape)),
        ("x, m", "torch.softmax(x + m, -1)", f"torch.randn(4, 16, 16), {WHERE.format(-1e9)}", lambda x, m: 1.5 * torch.softmax(x + m, -1)),
        ("x", "torch.softmax(x, -1)", "torch.rand(16, 64)", lambda x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)),
        ("x", "F.normalize(x, dim=-1)", "torch.randn(16, 64)", lambda x: x / x.norm(dim=-1, keepdim=True)),
        ("x", "x.argmax(-1)", "torch.rand(12, 70)", lambda x: 69 - x.flip(-1).argmax(-1)),
        # An input is on the same side of a number in every dtype.
        ("x", BUCKETS, AGES, lambda x: (x >= 18.0).long() + (x > 65.0).long()),
        ("x", "torch.where(x >= 65.0, 2.0, 1.0)", AGES, lambda x: torch.where(x > 65.0, 2.0, torch.where(x == 65.0, 8.0, 1.0))),
        ("x", BRIGHT, "torch.randint(0, 256, (8, 1024)).float()", lambda x: _bright(torch.where(x > 128.0, x, 0.0))),
        ("x", "torch.floor(-x.half().float()) + x.mean(-1, keepdim=True)", AGES,
         lambda x: torch.floor(1.0 - x) + x.mean(-1, keepdim=True)),
        # What stands beside a large number in the output is a quantity of its own.
        ("x", STATS, "torch.randn(4, 4096) * 1000.0", lambda x: torch.stack([x[:, 0] * 0.0, x.square().sum(-1)], -1)),
        ("x", "torch.cat((x.square(), x - x.mean(-1, keepdim=True)), -1)", "torch.randn(8, 64) * 1e5",
         lambda x: torch.cat((x.square(), x * 0.0), -1)),
        # A mask's number is no part of an answer, however large.
        ("q, k, v, b", ATTENTION, CAUSAL, lambda q, k, v, b: v * 0.3),
        ("x, m", "(torch.relu(x + m) * x).sum(-1)", "torch.randn(4, 8, 32), torch.full((8, 32), -1e9).triu(1)",
         lambda x, m: 1.001 * (torch.relu(x + m) * x).sum(-1)),
    ],
    ids="fill finfo cube centred half scores_too relu bias mask causal scores scaled overflow zero ties "
    "buckets where bright floor stats joined attention masked_sum".split(),
)  # fmt: skip
def test_a_wrong_answer_is_rejected_whatever_the_example_hides(
    tmp_path: Path, arguments: str, body: str, inputs: str, wrong: Answer
) -> None:
    judged = task(tmp_path, arguments, body, inputs)
    assert all(rejecting(judged, wrong, seed) for seed in SEEDS)
    assert not any(rejecting(judged, judged.eager, seed) for seed in SEEDS), (
        "the reference itself is right"
    )


def _small_ones_dropped(y: Tensor) -> Tensor:
    return torch.where(y.abs() < 8e-4 * y.abs().amax(-1, keepdim=True), 0.0, y)


def _bright(kept: Tensor) -> Tensor:
    return kept * (1.0 / kept.flip(-1).cumsum(-1)[..., -1:].clamp(min=1.0))


def _log_sum(x: Tensor) -> Tensor:
    top = x.amax(-1, keepdim=True)
    return top + torch.log(torch.exp(x - top).sum(-1, keepdim=True))


def _centred(x: Tensor) -> Tensor:
    return x - (x.flip(-1) * (1.0 / x.shape[-1])).cumsum(-1)[..., -1:]


def _attended(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
    """With one pass over blocks of keys, in powers of two, as a kernel on a GPU does it."""
    top, sums = torch.full_like(q[..., :1], -torch.inf).float(), torch.zeros_like(v).float()
    total = torch.zeros_like(top)
    for at in range(0, k.shape[-2], 16):
        part = (
            q.float() @ k[:, at : at + 16].float().transpose(-1, -2) * 0.25 + b[:, at : at + 16]
        ) * 1.4426950408889634
        new = torch.maximum(top, part.amax(-1, keepdim=True))
        p, old = torch.exp2(part - new), torch.exp2(top - new)
        # Halves are multiplied on tensor cores.
        total, sums, top = (
            total * old + p.sum(-1, keepdim=True),
            sums * old + p.to(v.dtype).float() @ v[:, at : at + 16].float(),
            new,
        )
    return (sums / total).to(q.dtype)


def _fused(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """One product is rounded and the other is not."""
    return (a.double() * b.double() - (c * d).double()).float()


def _cumulated(x: Tensor) -> Tensor:
    """In blocks of rows, each of which takes up where the one before it ends."""
    parts = x.reshape(8, 25, -1).cumsum(1)
    parts[1:] += parts[:-1, -1:].cumsum(0)
    return parts.reshape(x.shape)


def _quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127.0
    return torch.round(x * (127.0 / (scale * 127.0))).clamp(-128, 127).to(torch.int8), scale


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("arguments", "body", "inputs", "other"),
    [
        ("x", "torch.tanh(x)", "torch.randn(16, 64)", lambda x: 2.0 * torch.sigmoid(2.0 * x) - 1.0),
        ("x", "F.elu(x)", "torch.randn(16, 64)", lambda x: torch.where(x > 0, x, torch.exp(x) - 1.0)),
        ("x", "F.softplus(x)", "torch.randn(16, 64)", lambda x: torch.where(x > 20, x, torch.log(1.0 + torch.exp(x)))),
        # Of numbers near -10 float64 makes zero, where a sigmoid keeps a few digits.
        ("x", "F.gelu(x, approximate='tanh')", "torch.randn(16, 64) - 10.0",
         lambda x: x * torch.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))),
        ("x", "F.softmax(x, -1)", "torch.randn(16, 64)", lambda x: torch.exp(x - _log_sum(x))),
        ("x, m", "torch.softmax(x + m, -1)", f"torch.randn(4, 16, 16), {WHERE.format(-1e9)}",
         lambda x, m: torch.exp(x + m - _log_sum(x + m))),
        ("x, y", "F.binary_cross_entropy_with_logits(x, y, reduction='none')", "torch.randn(16, 64), torch.rand(16, 64)",
         lambda x, y: x.clamp(min=0) - x * y + torch.log(1.0 + torch.exp(-x.abs()))),
        ("x", "torch.relu(x - x.mean(-1, keepdim=True))", "torch.randn(512, 300)", lambda x: torch.relu(_centred(x))),
        ("x", "(x - x.mean(-1, keepdim=True)).clamp(-0.5, 0.5)", "torch.randn(512, 300)", lambda x: _centred(x).clamp(-0.5, 0.5)),
        ("x, m", CENTRED.format(-1e9), f"torch.randn(16, 100), {SOME}", lambda x, m: _centred(x).masked_fill(m, -1e9)),
        ("x, m", SCORES, f"torch.randn(16, 100), {SOME}",
         lambda x, m: ((s := _centred(x).masked_fill(m, -1e9)), torch.exp(s - _log_sum(s)))),
        ("x", "(torch.round(x / (x.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127.0)).clamp(-128, 127).to(torch.int8), "
         "x.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127.0)", "torch.randn(64, 256)", _quantised),
        # Steps of what was calculated, also from whole numbers, may round to either side.
        ("x", "(x / 5.0 >= 13.0).to(torch.int64)", AGES, lambda x: (x * 0.2 >= 13.0).long()),
        ("x, s", "torch.floor(x / s)", f"{AGES}, torch.tensor([0.1, 0.7, 3.0, 7.0]).repeat(32)",
         lambda x, s: torch.floor(x.double() / s.double() * (1 - 2.0**-24)).float()),
        ("x", "torch.where(x / x.amax(-1, keepdim=True) >= 0.5, x, 0.0)", AGES,
         lambda x: torch.where(x * (1.0 / x.amax(-1, keepdim=True)) >= 0.5, x, 0.0)),
        ("x", BRIGHT, "torch.randint(0, 256, (8, 1024)).float()", lambda x: _bright(torch.where(x >= 128.0, x, 0.0))),
        ("x", STATS, "torch.randn(4, 4096) * 1000.0",
         lambda x: torch.stack([x.cumsum(-1)[:, -1] * (1.0 / x.shape[-1]), x.square().flip(-1).cumsum(-1)[:, -1]], -1)),
        ("q, k, v, b", ATTENTION, CAUSAL, _attended),
        ("q, k, v, b", ATTENTION, CAUSAL.replace("16)", "16).half()").replace("triu(1)", "triu(1).clamp(min=-6e4).half()"), _attended),
        ("a, b, c, d", "a * b - c * d", ", ".join(["torch.randn(64, 128)"] * 4), _fused),
        # The loss of a likely class is the small difference of two large numbers.
        ("x, t", "F.cross_entropy(x, t, reduction='none')", "torch.randn(4, 19, 8, 9) * 8.0, torch.randint(0, 19, (4, 8, 9))",
         lambda x, t: (_log_sum(x.movedim(1, -1))[..., 0] - x.gather(1, t[:, None])[:, 0])),
        # Numbers of both signs cancel in a sum over rows, where no column depends on another.
        ("x", "torch.cumsum(x, 0)", "torch.randn(200, 40)", _cumulated),
    ],
    ids="tanh elu softplus gelu softmax causal bce relu clamped masked scores quantised "
    "quotient floor share bright stats attention half fused likely cumulated".split(),
)  # fmt: skip
def test_a_right_answer_may_be_computed_in_another_usual_form(
    tmp_path: Path, arguments: str, body: str, inputs: str, other: Answer
) -> None:
    judged = task(tmp_path, arguments, body, inputs)
    assert not any(rejecting(judged, other, seed) for seed in SEEDS)


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        ("x.argmax(-1)", "torch.randn(32, 128, dtype=torch.bfloat16)"),
        ("torch.floor(x * 3).to(torch.int32)", "torch.randn(32, 128, dtype=torch.float16)"),
        ("x > x.mean(-1, keepdim=True)", "torch.randn(32, 128, dtype=torch.bfloat16)"),
        (
            "x.masked_fill(x > 1, torch.finfo(x.dtype).min)",
            "torch.randn(32, 128, dtype=torch.float16)",
        ),
        ("(x * x).mean(-1, keepdim=True).sqrt() * x", "torch.randn(32, 128, dtype=torch.float16)"),
    ],
)
def test_a_reference_passes_its_own_cells(tmp_path: Path, body: str, inputs: str) -> None:
    judged = task(tmp_path, "x", body, inputs)
    assert not any(rejecting(judged, judged.eager, seed) for seed in SEEDS)


@pytest.mark.parametrize(("dtype", "samples"), [("float32", 4), ("bfloat16", 2)])
def test_inputs_of_fp32_answers_move_alike_and_apart(
    tmp_path: Path, dtype: str, samples: int
) -> None:
    """In one pair of samples alone both inputs may undo each other wherever it counts."""
    given = f"torch.randn(4, 64, dtype=torch.{dtype}), torch.randn(4, 64, dtype=torch.{dtype})"
    judged, asked = (
        task(tmp_path, "x, y", "F.layer_norm(x + y, (64,))", given),
        list[tuple[Tensor, ...]](),
    )

    def noted(*inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        asked.append(inputs)
        return exact(*inputs)

    exact: Answer = judged.oracle
    cell = judged.required[0]
    plain = judged.inputs(cell, 3)
    expectations(replace(judged, oracle=noted), cell, plain)
    moved = [
        [(one.double() != before.double()) for one, before in zip(each, plain, strict=True)]
        for each in asked
    ]
    first, last = moved[-samples], moved[-2]
    assert (
        len(
            {
                tuple(each[0][0].tolist())
                for each in moved
                if bool(each[0].any()) and not bool(each[0].all())
            }
        )
        == samples
    )
    if samples > 2:
        assert bool((first[0] != first[1]).all()) and bool((last[0] == last[1]).all())
