"""Values at which wrong kernels are found by a user's reference, and right ones are not: empty
rows, ties, tiny numbers, changed inputs.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor

from referee.answers.error_sizes import evaluate
from referee.ops.task import Task
from referee.reference.words import drawn_values
from tests.referee.own_reference import Answer, rejecting, task
from tests.sampling import repeats, sample

SEEDS = repeats(3, 6)

POOLED = "(x * m.unsqueeze(-1)).sum(1) / m.unsqueeze(-1).sum(1).clamp(min=1)"
MASKED = "torch.softmax(x.masked_fill(~m, torch.finfo(x.dtype).min), -1) * m"
MASK = "torch.rand(8, 24) > 0.4"


def said(judged: Task) -> str:
    return drawn_values(judged.required, judged.given)


def kinds(judged: Task) -> set[str]:
    return {cell.name.removeprefix("example0-") for cell in judged.cells}


@pytest.mark.parametrize(
    "mask",
    [
        "torch.rand(4, 24) > 0.4",
        "(torch.rand(4, 24) > 0.4).int()",
        "(torch.rand(4, 24) > 0.4).float()",
    ],
)
def test_a_mask_has_a_row_of_each_value(tmp_path: Path, mask: str) -> None:
    judged = task(tmp_path, "x, m", POOLED, f"torch.randn(4, 24, 16), {mask}")
    for seed in SEEDS:
        for cell in judged.cells:
            if cell.name.endswith(("-large", "-zero")):
                counts = judged.inputs(cell, seed)[1].sum(-1)
                assert (counts == 0).sum() == (counts == 24).sum() == 1
    assert "row" not in said(judged)


def test_rows_of_a_mask_end_with_its_last_long_dimension(tmp_path: Path) -> None:
    judged = task(
        tmp_path,
        "x, m",
        "(x * m).sum(1) / m.sum(1).clamp(min=1)",
        "torch.randn(4, 24, 16), torch.rand(4, 24, 1) > 0.4",
    )
    large = next(cell for cell in judged.cells if cell.name.endswith("large"))
    counts = judged.inputs(large, 1)[1].sum((1, 2))
    assert (counts == 0).sum() == (counts == 24).sum() == 1


@pytest.mark.parametrize(
    ("body", "inputs", "wrong", "right"),
    [
        (POOLED, f"torch.randn(8, 24, 16), {MASK}", lambda x, m: (x * m.unsqueeze(-1)).sum(1) / m.unsqueeze(-1).sum(1),
         lambda x, m: torch.where(m[..., None], x, 0.0).sum(1) / m.sum(1).clamp(min=1)[:, None]),
        (MASKED, f"torch.randn(8, 24), {MASK}", lambda x, m: torch.softmax(x.masked_fill(~m, -torch.inf), -1),
         lambda x, m: torch.softmax(x.masked_fill(~m, -torch.inf), -1).nan_to_num()),
        (MASKED, f"torch.randn(3, 8, 24), {MASK}", lambda x, m: torch.softmax(x.masked_fill(~m, -torch.inf), -1),
         lambda x, m: torch.softmax(x.masked_fill(~m, -1e30), -1) * m),
        ("(x * m).sum(1) / m.sum().clamp(min=1)", "torch.randn(8, 24), torch.rand(24) > 0.4", lambda x, m: (x * m).sum(1) / m.sum(),
         lambda x, m: (x @ m.float()) / m.sum().clamp(min=1)),
        ("(x * ~m).sum(1) / (~m).sum().clamp(min=1)", "torch.randn(8, 24), torch.rand(1, 24) > 0.4",
         lambda x, m: (x * ~m).sum(1) / (~m).sum(), lambda x, m: (x * ~m).sum(1) / (~m).sum().clamp(min=1)),
    ],
    ids=["pooled", "softmax", "broadcast", "one", "inverted"],
)  # fmt: skip
def test_a_row_without_valid_positions_is_judged(
    tmp_path: Path, body: str, inputs: str, wrong: Answer, right: Answer
) -> None:
    judged = task(tmp_path, "x, m", body, inputs)
    assert all(rejecting(judged, wrong, seed) for seed in SEEDS)
    assert not any(
        rejecting(judged, answer, seed) for seed in SEEDS for answer in (right, judged.eager)
    )


@pytest.mark.parametrize(
    ("fill", "words"),
    [
        ("x.masked_fill(~m, -torch.inf)", "m 0 to 1 (no row without a True);"),
        ("x.masked_fill(m, -torch.inf)", "m 0 to 1 (no row without a False);"),
        # There exp(z - log(sum(exp(z)))), a usual form, is one instead of 1/24.
        ("x.masked_fill(~m, -1e9)", "m 0 to 1 (no row without a True);"),
        ("x.masked_fill(~m, -1e3)", "m 0 to 1;"),
    ],
)
def test_rows_that_no_kernel_can_answer_are_left_out_and_named(
    tmp_path: Path, fill: str, words: str
) -> None:
    judged = task(tmp_path, "x, m", f"torch.softmax({fill}, -1)", f"torch.randn(8, 24), {MASK}")
    assert words in said(judged)
    assert {"large", "zero"} <= kinds(judged), "the other values stay"
    assert not any(rejecting(judged, judged.eager, seed) for seed in SEEDS)


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (
            "(c[:, :4].copy_(k), c.mean(1))[1]",
            ("arguments that the reference changes in place are not judged: c",),
        ),
        (
            "(k.zero_(), c.mul_(2))[1] + k.sum()",
            ("arguments that the reference changes in place are not judged: c, k",),
        ),
        ("c.mul_(2)", ()),
        ("c.mean(1)", ()),
    ],
)
def test_a_changed_input_is_said_unless_it_is_returned(
    tmp_path: Path, body: str, changed: tuple[str, ...]
) -> None:
    judged = task(tmp_path, "c, k", body, "torch.randn(4, 16), torch.randn(4, 4)")
    assert judged.reservations == changed


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("step", [16.0, 4.0, 1.0])
def test_a_number_in_the_middle_is_rounded_to_even(tmp_path: Path, step: float, dtype: str) -> None:
    body = f"torch.round(x * {step}).clamp(-128, 127).to(torch.int8)"
    judged = task(tmp_path, "x", body, f"torch.randn(8, 256, dtype=torch.{dtype})")
    assert all(
        rejecting(
            judged, lambda x: torch.floor(x.float() * step + 0.5).clamp(-128, 127).to(torch.int8), s
        )
        for s in SEEDS
    )
    right = (
        judged.eager,
        lambda x: torch.round(x.float() / (1.0 / step)).clamp(-128, 127).to(torch.int8),
    )
    assert not any(rejecting(judged, answer, seed) for seed in SEEDS for answer in right)


def test_ties_fall_on_one_operand_only(tmp_path: Path) -> None:
    judged = task(
        tmp_path,
        "x, s",
        "torch.round(x / s).to(torch.int8)",
        "torch.randn(64, 32), torch.rand(32) + 0.5",
    )
    cells = {cell.name.removeprefix("example0-"): cell for cell in judged.cells}
    assert cells["large"].values == "normal_grid|uniform|"
    x = judged.inputs(cells["large"], 3)[0]
    assert x.abs().min() > 0 and torch.equal(x * 64, (x * 64).round())


def _by_column(x: Tensor) -> Tensor:
    return torch.round(x * (127.0 / x.abs().amax(0, keepdim=True))).to(torch.int8)


def _by_row(x: Tensor) -> Tensor:
    return torch.round(x * (127.0 / x.abs().amax(-1, keepdim=True).clamp(min=1e-8))).to(torch.int8)


@pytest.mark.parametrize(
    ("arguments", "body", "inputs", "other"),
    [
        ("x", "torch.round(x / (x.abs().amax(0, keepdim=True).clamp(min=1e-8) / 127)).to(torch.int8)", "torch.randn(256, 64)",
         lambda x: _by_column(x) if x.any() else x.to(torch.int8)),
        ("x", "torch.round(x / (x.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127)).to(torch.int8)", "torch.randn(64, 256)", _by_row),
        ("x, s", "torch.round(x / s).clamp(-128, 127).to(torch.int8)", "torch.randn(256, 64), torch.rand(64) * 0.1 + 0.05",
         lambda x, s: torch.round(x / s).clamp(-128, 127).to(torch.int8)),
        ("x", "torch.round(x / 0.05).clamp(-128, 127).to(torch.int8)", "torch.randn(64, 64)",
         lambda x: torch.round(x * 20.0).clamp(-128, 127).to(torch.int8)),
        ("x", "torch.round(x * 8) / 8", "torch.randn(64, 64)", lambda x: torch.round(x / 0.125) * 0.125),
    ],
    ids=["columns", "rows", "scales", "step", "fake"],
)  # fmt: skip
def test_a_right_quantiser_passes_for_numbers_in_the_middle(
    tmp_path: Path, arguments: str, body: str, inputs: str, other: Answer
) -> None:
    judged = task(tmp_path, arguments, body, inputs)
    assert not any(
        rejecting(judged, answer, seed) for seed in SEEDS for answer in (other, judged.eager)
    )


IN_RANGE = "((m := (x >= -0.5) & (x < 0.5)), m.sum(-1))"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("arguments", "body", "inputs", "wrong", "right"),
    [
        ("x", IN_RANGE, "torch.randn(6, 50)", lambda x: ((m := (x >= -0.5) & (x <= 0.5)), m.sum(-1)),
         lambda x: ((m := ~((x < -0.5) | ~(x < 0.5))), m.sum(-1))),
        ("x", IN_RANGE, "torch.randn(6, 50)", lambda x: ((m := (x > -0.5) & (x < 0.5)), m.sum(-1)),
         lambda x: ((m := (2 * x >= -1) & (2 * x < 1)), m.sum(-1))),
        ("x, a, b", "torch.where(x < 0.5, a, b)", "torch.rand(4, 33), torch.randn(33), torch.randn(33)",
         lambda x, a, b: torch.where(x <= 0.5, a, b), lambda x, a, b: torch.where(0.5 > x.float(), a, b)),
        ("a, p", "torch.where(p.clone().float() > 0.25, a * 1.5, 0.0)", "torch.randn(4, 33), torch.rand(4, 33)",
         lambda a, p: torch.where(p >= 0.25, a * 1.5, 0.0), lambda a, p: torch.where(p <= 0.25, 0.0, a.float() * 1.5).to(a.dtype)),
    ],
    ids=["above", "below", "chosen", "dropped"],
)  # fmt: skip
def test_the_side_of_a_number_equal_to_an_input_is_judged(
    tmp_path: Path, arguments: str, body: str, inputs: str, wrong: Answer, right: Answer, dtype: str
) -> None:
    narrow = inputs.replace(")", f", dtype=torch.{dtype})")
    judged = task(tmp_path, arguments, body, narrow)
    assert all("equal" in rejecting(judged, wrong, seed) for seed in SEEDS)
    assert not [
        found
        for seed in SEEDS
        for answer in (right, judged.eager)
        for found in rejecting(judged, answer, seed)
    ]


def test_a_tenth_is_equal_to_the_numbers_in_turn(tmp_path: Path) -> None:
    body = "(x >= 2.5).int() + (x > -0.5).int() + (x < 0.1).int() + y.int()"
    judged = task(tmp_path, "x, y", body, "3 * torch.randn(40, 50), torch.randn(50)")
    equal = next(cell for cell in judged.cells if cell.name.endswith("-equal"))
    for seed in SEEDS:
        x, y = judged.inputs(equal, seed)
        # 0.1 is none of float32's numbers.
        high, low = (int((x == number).sum()) for number in (2.5, -0.5))
        assert high + low == 200 and min(high, low) > 50
        assert (x[x != 2.5]).std() > 2.0 and len(set(y.tolist())) > 40
    assert "x of both signs, some equal to 2.5, -0.5; y of both signs;" in said(judged)


def test_each_number_is_met_by_a_short_input(tmp_path: Path) -> None:
    judged = task(
        tmp_path, "x", "(x > 0.5).int() + (x > 0.25).int() + (x > 0.75).int()", "torch.rand(5)"
    )
    equal = next(cell for cell in judged.cells if cell.name.endswith("-equal"))
    for seed in SEEDS:
        assert {0.25, 0.5, 0.75} <= set(judged.inputs(equal, seed)[0].tolist())


@pytest.mark.parametrize(
    "body",
    [
        "torch.where(x > 0.5, x - 0.5, 0.0)",
        "torch.where(x >= 0.5, 1.0 / (x - 0.5), x)",
        "torch.where(x >= 0.1, 1.0, 0.0)",
        "torch.where(x * 2.0 >= 0.5, 1.0, 0.0)",
        "torch.where(x > -torch.inf, 1.0, 0.0)",
    ],
    ids=["continuous", "infinite", "rounded", "computed", "infinity"],
)
def test_numbers_that_nothing_is_to_be_equal_to(tmp_path: Path, body: str) -> None:
    judged = task(tmp_path, "x", body, "torch.randn(6, 50)")
    assert "equal" not in kinds(judged) and "equal" not in said(judged) and "large" in kinds(judged)


@pytest.mark.parametrize("eps", [1e-12, 1e-10])
def test_an_epsilon_that_shows_at_tiny_values_only_is_found(tmp_path: Path, eps: float) -> None:
    judged = task(tmp_path, "x", "F.normalize(x, dim=-1)", "torch.randn(8, 256)")
    assert all(
        rejecting(judged, lambda x: x * torch.rsqrt((x * x).sum(-1, keepdim=True) + eps), seed)
        == ["tiny"]
        for seed in SEEDS
    )


def _layer(x: Tensor, eps: float) -> Tensor:
    mean = x.sum(-1, keepdim=True) / x.shape[-1]
    return (x - mean) / torch.sqrt(((x - mean) ** 2).sum(-1, keepdim=True) / x.shape[-1] + eps)


def _softmax(x: Tensor) -> Tensor:
    e = torch.exp2((x - x.amax(-1, keepdim=True)) * 1.4426950408889634)
    return e * (1.0 / e.sum(-1, keepdim=True))


HONEST: dict[str, tuple[str, Answer]] = {
    "rmsnorm": (
        "F.rms_norm(x, (x.shape[-1],), eps=1e-6)",
        lambda x: x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6),
    ),
    "layernorm": ("F.layer_norm(x, (x.shape[-1],))", lambda x: _layer(x, 1e-5)),
    "softmax": ("torch.softmax(x, -1)", _softmax),
    "log_softmax": (
        "torch.log_softmax(x, -1)",
        lambda x: (
            (y := x - x.amax(-1, keepdim=True)) - torch.log(torch.exp(y).sum(-1, keepdim=True))
        ),
    ),
    "normalize": (
        "F.normalize(x, dim=-1)",
        lambda x: x / torch.sqrt((x * x).sum(-1, keepdim=True)).clamp(min=1e-12),
    ),
    "gelu": ("F.gelu(x)", lambda x: 0.5 * x * (1.0 + torch.erf(x * 0.7071067811865476))),
    "gelu_tanh": (
        "F.gelu(x, approximate='tanh')",
        lambda x: (
            0.5
            * x
            * (
                1.0
                + (2.0 * torch.sigmoid(2 * 0.7978845608028654 * (x + 0.044715 * x * x * x)) - 1.0)
            )
        ),
    ),
    "silu": ("F.silu(x)", lambda x: x / (1.0 + torch.exp(-x))),
    "tanh": ("torch.tanh(x)", lambda x: 2.0 * torch.sigmoid(2.0 * x) - 1.0),
    "elu": ("F.elu(x)", lambda x: torch.where(x > 0, x, torch.exp(x) - 1.0)),
    "variance": (
        "x.var(-1)",
        lambda x: ((x - x.mean(-1, keepdim=True)) ** 2).sum(-1) / (x.shape[-1] - 1),
    ),
    "norm": ("x.norm(dim=-1)", lambda x: torch.sqrt((x * x).sum(-1))),
    "product": ("x @ x.mT", lambda x: (x.double() @ x.double().mT).float()),
    "cube": ("x * x * x", lambda x: x * (x * x)),
    "square": (
        "(x * x).mean(-1, keepdim=True)",
        lambda x: (x * x).sum(-1, keepdim=True) * (1.0 / x.shape[-1]),
    ),
    "entropy": (
        "F.kl_div(torch.log_softmax(x, -1), torch.softmax(x.flip(0), -1), reduction='none').sum(-1)",
        lambda x: (
            _softmax(x.flip(0)) * (torch.log(_softmax(x.flip(0))) - torch.log(_softmax(x)))
        ).sum(-1),
    ),
}


@pytest.mark.parametrize(
    ("dtype", "name"),
    sample(
        product(("float32", "float16", "bfloat16"), [name for name in HONEST if name != "entropy"]),
        step=4,
    ),
)
def test_a_right_kernel_passes_at_all_magnitudes(tmp_path: Path, dtype: str, name: str) -> None:
    body, other = HONEST[name]
    judged = task(tmp_path, "x", body, f"torch.randn(8, 96, dtype=torch.{dtype})")
    narrow: torch.dtype = getattr(torch, dtype)
    answers: tuple[Answer, ...] = (
        judged.eager,
        lambda x: evaluate(other, [x.float()])[0].to(narrow),
    )
    assert not [
        found for seed in SEEDS for answer in answers for found in rejecting(judged, answer, seed)
    ]
    assert ("tiny" in kinds(judged)) == (name not in ("tanh", "elu", "gelu", "gelu_tanh"))


def test_tiny_values_are_left_out_where_fp32_cannot_answer(tmp_path: Path) -> None:
    for body in (HONEST["entropy"][0], "torch.exp(x) - 1", "torch.tanh(x)"):
        judged = task(tmp_path, "x", body, "torch.randn(8, 96)")
        assert "tiny" not in kinds(judged) and "; no NaN, infinities or tiny values;" in said(
            judged
        )
        assert not any("tiny" in rejecting(judged, judged.eager, seed) for seed in SEEDS)
