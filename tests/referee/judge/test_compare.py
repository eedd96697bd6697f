"""The comparator: what good kernels of other styles may do, what wrong ones may not, and what it says of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from referee import ops
from referee.answers.compare import against, compare
from referee.answers.tolerance import EPS32, FLOOR, Expected, expectations, ulp
from referee.ops.cells import cell_of
from referee.ops.plans import Draft
from referee.ops.spec import Cell, Dtype, TensorSpec
from referee.ops.task import Task, load
from referee.ops.values import draw
from referee.verdict import CellResult

Candidate = Callable[..., Tensor]
SEED = 20240607
MOST_ROWS = 70


def tree_sum(values: Tensor) -> Tensor:
    """A pairwise tree in the values' own dtype, as a block reduction on a GPU."""
    width = 1 << (values.shape[-1] - 1).bit_length()
    values = torch.nn.functional.pad(values, (0, width - values.shape[-1]))
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        values = values[..., :half] + values[..., half:]
    return values


def sequential_sum(values: Tensor) -> Tensor:
    total = torch.zeros_like(values[..., :1])
    for start in range(0, values.shape[-1], 16):
        total = total + values[..., start : start + 16].sum(-1, keepdim=True)
    return total


def judge(op: str, candidate: Candidate, *, profile: str = "cpu") -> list[CellResult]:
    task = load(op, "gpu" if profile == "gpu" else "cpu")
    results = []
    for cell in task.required:
        if cell.inputs[0].shape[0] <= MOST_ROWS:
            inputs = draw(cell, SEED)
            results.append(compare(task, cell, inputs, (candidate(*inputs),)))
    return results


def rms(x: Tensor, w: Tensor, total: Callable[[Tensor], Tensor], eps: float = 1e-6) -> Tensor:
    v = x.float()
    return (v * torch.rsqrt(total(v * v) / v.shape[-1] + eps) * w.float()).to(x.dtype)


def layernorm(x: Tensor, w: Tensor, b: Tensor, *, single_pass: bool) -> Tensor:
    v, n = x.float(), x.shape[-1]
    mean = tree_sum(v) / n
    variance = tree_sum(v * v) / n - mean * mean if single_pass else tree_sum((v - mean) ** 2) / n
    return ((v - mean) * torch.rsqrt(variance + 1e-5) * w.float() + b.float()).to(x.dtype)


def softmax(x: Tensor, *, subtract: bool = True) -> Tensor:
    v = x.float() * 1.4426950408889634
    e = torch.exp2(v - v.amax(-1, keepdim=True) if subtract else v)
    return (e / tree_sum(e)).to(x.dtype)


def online_softmax(x: Tensor) -> Tensor:
    m = torch.full_like(x[..., :1], -torch.inf, dtype=torch.float32)
    s = torch.zeros_like(m)
    for start in range(0, x.shape[-1], 64):
        part = x[..., start : start + 64].float()
        top = torch.maximum(m, part.amax(-1, keepdim=True))
        s = s * torch.exp(m - top) + torch.exp(part - top).sum(-1, keepdim=True)
        m = top
    return (torch.exp(x.float() - m) / s).to(x.dtype)


def mish_rewritten(x: Tensor) -> Tensor:
    n = torch.exp(torch.clamp(x, max=20.0))
    n = n * (n + 2)
    return torch.where(x > 20, x, x * n / (n + 2))


def unshifted_cross_entropy(x: Tensor, tgt: Tensor) -> Tensor:
    v = x.float()
    top = v.amax(-1, keepdim=True)
    lse = top + torch.log(torch.exp(v - top).sum(-1, keepdim=True))
    return (lse - v.gather(-1, tgt[:, None])).squeeze(-1).to(x.dtype)


def kl_by_logs(x: Tensor, y: Tensor, *, swapped: bool = False) -> Tensor:
    """Sum of p (log p - log q) with shifted logits and tree sums, as a kernel computes it."""
    a, b = ((y if swapped else x).float(), (x if swapped else y).float())
    a, b = a - a.amax(-1, keepdim=True), b - b.amax(-1, keepdim=True)
    p, q = tree_sum(torch.exp(a)), tree_sum(torch.exp(b))
    return tree_sum(torch.exp(a) / p * ((a - torch.log(p)) - (b - torch.log(q)))).squeeze(-1).to(x.dtype)


def log_sum_exp(x: Tensor) -> Tensor:
    top = x.float().amax(-1, keepdim=True)
    return top + torch.log(tree_sum(torch.exp(x.float() - top)))


def kl_by_log_sum_exps(x: Tensor, y: Tensor) -> Tensor:
    p, q = x.float() - log_sum_exp(x), y.float() - log_sum_exp(y)
    return tree_sum(torch.exp(p) * (p - q)).squeeze(-1).to(x.dtype)


def softplus_by_log(y: Tensor) -> Tensor:
    return torch.where(y > 20, y, torch.log(1 + torch.exp(y)))


def normed(x: Tensor, w: Tensor) -> Tensor:
    return rms(x.float(), w.float(), tree_sum)


def low_precision_rms(x: Tensor, w: Tensor) -> Tensor:
    total = tree_sum(x * x).float()
    return (x.float() * torch.rsqrt(total / x.shape[-1] + 1e-6) * w.float()).to(x.dtype)


GOOD: dict[str, tuple[str, Candidate]] = {
    "tree sum": ("rmsnorm", lambda x, w: rms(x, w, tree_sum)),
    "sequential sum": ("rmsnorm", lambda x, w: rms(x, w, sequential_sum)),
    "sqrt and divide": ("rmsnorm", lambda x, w: (x.float() / torch.sqrt(x.float().square().mean(-1, keepdim=True) + 1e-6) * w).to(x.dtype)),
    "one rounding before the weight": ("rmsnorm", lambda x, w: rms(x, torch.ones_like(w), tree_sum) * w),
    "exp2 with a scale": ("softmax", softmax),
    "online": ("softmax", online_softmax),
    "two-pass variance": ("layernorm", lambda x, w, b: layernorm(x, w, b, single_pass=False)),
    "tanh through sigmoid": ("rmsnorm_tanh", lambda x, w: (2 * torch.sigmoid(2 * normed(x, w)) - 1).to(x.dtype)),
    "mish with one exponential": ("rmsnorm_mish", lambda x, w: mish_rewritten(normed(x, w)).to(x.dtype)),
    "elu as exp minus one": ("rmsnorm_elu", lambda x, w: (lambda y: torch.where(y > 0, y, torch.exp(y) - 1))(normed(x, w)).to(x.dtype)),
    "softplus as log": ("rmsnorm_softplus", lambda x, w: softplus_by_log(normed(x, w)).to(x.dtype)),
    "softcap through sigmoid": ("softcap_softmax", lambda x: softmax(30 * (2 * torch.sigmoid(x.float() / 15) - 1)).to(x.dtype)),
    "silu by division": ("rmsnorm_silu", lambda x, w: (normed(x, w) / (1 + torch.exp(-normed(x, w)))).to(x.dtype)),
    "softmax by one log-sum-exp": ("softmax", lambda x: torch.exp(x.float() - log_sum_exp(x)).to(x.dtype)),
    "scaled softmax by one log-sum-exp": (
        "softmax_scale",
        lambda x, scale: torch.exp(x.float() * scale.float() - log_sum_exp(x.float() * scale.float())).to(x.dtype),
    ),
    "divergence by log-sum-exps": ("kl_div", kl_by_log_sum_exps),
    "log-sum-exp minus target": ("cross_entropy", unshifted_cross_entropy),
    "scan in fp32": ("cumsum", lambda x: torch.cumsum(x.float(), -1).to(x.dtype)),
}

WRONG: dict[str, tuple[str, Candidate]] = {
    "missing eps": ("rmsnorm", lambda x, w: rms(x, w, tree_sum, eps=0.0)),
    "layernorm's eps": ("rmsnorm", lambda x, w: rms(x, w, tree_sum, eps=1e-5)),
    "sums in the input's dtype": ("rmsnorm", low_precision_rms),
    "sum for mean": ("rmsnorm", lambda x, w: rms(x, w, lambda v: tree_sum(v) * v.shape[-1])),
    "divided by the block": ("rmsnorm", lambda x, w: rms(x, w, lambda v: tree_sum(v) * (1000 / 1024))),
    "no max": ("softmax", lambda x: softmax(x, subtract=False)),
    "wrong axis": ("softmax", lambda x: torch.softmax(x.float(), 0).to(x.dtype)),
    "single-pass variance": ("layernorm", lambda x, w, b: layernorm(x, w, b, single_pass=True)),
    "erf for tanh": ("gelu", lambda x: torch.nn.functional.gelu(x.float()).to(x.dtype)),
    "tanh for erf": ("rmsnorm_gelu_erf", lambda x, w: torch.nn.functional.gelu(normed(x, w), approximate="tanh").to(x.dtype)),
    "computed in bfloat16": ("silu", lambda x: torch.nn.functional.silu(x.bfloat16().float()).to(x.dtype)),
    "zeros": ("softmax", torch.zeros_like),
    "exponential a thousandth of a percent off": ("softmax", lambda x: (softmax(x).float() * 1.00001).to(x.dtype)),
    "divergence a hundredth of a percent off": ("kl_div", lambda x, y: (kl_by_logs(x, y).float() * 1.0001).to(x.dtype)),
    "uniform": ("softmax", lambda x: torch.full_like(x, 1 / x.shape[-1])),
    "divergence the wrong way round": ("kl_div", lambda x, y: kl_by_logs(x, y, swapped=True)),
    "no divergence": ("kl_div", lambda x, y: torch.zeros_like(x[:, 0])),
    "last column missing": ("silu", lambda x: torch.cat([torch.nn.functional.silu(x.float())[:, :-1].to(x.dtype), x[:, -1:] * 0], 1)),
}


@pytest.mark.parametrize(("op", "candidate"), GOOD.values(), ids=GOOD)
@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_other_styles_of_a_right_kernel_pass(op: str, candidate: Candidate, profile: str) -> None:
    results = judge(op, candidate, profile=profile)
    assert [(r.name, r.detail) for r in results if r.status != "pass"] == []


def test_a_divergence_smaller_than_its_rounding_passes() -> None:
    """At tiny logits the divergence is the 1e-6 difference of log-probabilities near five, which fp32 cannot hold exactly."""
    task = load("kl_div", "gpu")
    (cell,) = [cell for cell in task.cells if cell.name.startswith("f32-257x128")]
    for seed in range(8):
        inputs = draw(cell, seed)
        result = compare(task, cell, inputs, (kl_by_logs(*inputs),))
        assert result.status == "pass", result.detail


@pytest.mark.parametrize(("op", "candidate"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_slips_fail_in_at_least_one_cell(op: str, candidate: Candidate, profile: str) -> None:
    results = judge(op, candidate, profile=profile)
    failures = [result for result in results if result.status == "fail"]
    assert failures and all(result.detail and "\n" not in result.detail for result in failures)


def test_tanh_and_erf_gelu_are_told_apart_in_every_ordinary_dtype() -> None:
    task = load("gelu", "gpu")
    erf = torch.nn.functional.gelu
    caught = set()
    for cell in task.required:
        if cell.inputs[0].shape[0] <= MOST_ROWS:
            inputs = draw(cell, SEED)
            if compare(task, cell, inputs, (erf(inputs[0].float()).to(inputs[0].dtype),)).status == "fail":
                caught.add(cell.inputs[0].dtype)
    assert caught == {"float32", "float16", "bfloat16"}


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_ulp_is_the_distance_to_the_next_number(dtype: torch.dtype, number: float) -> None:
    value = torch.tensor([number]).to(dtype)
    following = torch.nextafter(value.abs(), torch.tensor([torch.inf], dtype=dtype))
    if following.isfinite().all():
        assert ulp(value.double(), dtype).item() == (following.double() - value.double().abs()).item()


INF, NAN = torch.inf, torch.nan


@pytest.mark.parametrize(
    ("want", "got", "passes"),
    [
        (1.0, 1.0, True), (1.0, 1.0 + 2**-10, True), (1.0, 1.0 + 2**-9, False), (1.0, NAN, False), (1.0, INF, False),
        (NAN, NAN, True), (NAN, 1.0, False), (NAN, INF, False),
        (INF, INF, True), (INF, -INF, False), (INF, 65504.0, False), (INF, NAN, False), (-INF, -INF, True),
        (65520.0, INF, True), (65520.0, 65504.0, True), (65520.0, -INF, False), (80000.0, INF, True), (80000.0, 65504.0, False),
        (60000.0, INF, False), (0.0, -0.0, True), (0.0, 6e-8, True), (0.0, 6e-7, False),
    ],
)  # fmt: skip
def test_special_values_in_float16(want: float, got: float, passes: bool) -> None:
    value = torch.tensor([want], dtype=torch.float64)
    expected = Expected(value, 1.5 * ulp(value, torch.float16), torch.float16)
    assert (against(expected, torch.tensor([got]).half()).failure is None) == passes


def test_errors_that_are_not_finite_are_not_reported_as_numbers() -> None:
    value = torch.ones(2, dtype=torch.float64)
    found = against(Expected(value, 1.5 * ulp(value, torch.float16), torch.float16), torch.full((2,), NAN).half())
    assert found.failure is not None and (found.error, found.budget) == (None, None)


def test_integers_must_be_equal() -> None:
    value = torch.tensor([1, 2, 3])
    expected = Expected(value, torch.zeros(3, dtype=torch.float64), torch.int64)
    assert against(expected, value).failure is None
    failure = against(expected, value + torch.tensor([0, 0, 1])).failure
    assert failure is not None and "1 of 3 elements wrong, worst at row 2: got 4, expected 3" in failure


SPEC = TensorSpec("x", (8, 96), "float32", (96, 1))
CELL = Cell("f32-8x96", (SPEC,), (replace(SPEC, name="out"),), "normal", (1.0,), "required")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda out, x: out * 0, "all zeros"),
        (lambda out, x: out * 1.5, "every wrong element is 1.5 times"),
        (lambda out, x: out * (1 + torch.arange(1, 9)[:, None] / 10), "each row is off by a factor of its own"),
        (lambda out, x: out + torch.arange(1, 9)[:, None] / 10, "each row is off by a constant"),
        (lambda out, x: torch.cat([out[:, :64], out[:, 64:] * 0], 1), "only columns from 64 on"),
        (lambda out, x: torch.cat([out[:, :1] + 1, out[:, 1:]], 1), "only columns up to 0"),
        (lambda out, x: torch.cat([out[:6], out[6:] + x[6:]], 0), "only rows from 6 on"),
        (lambda out, x: torch.where(x < 0, x, out), "answer is negative"),
        (lambda out, x: torch.where(x > 1, torch.inf, out), "infinity where the answer is finite"),
        (lambda out, x: torch.where(x > 1, torch.nan, out), "NaN where the answer is finite"),
        (lambda out, x: out.view(torch.int32).masked_fill(x > 1, -1).view(torch.float32), "elements were written"),
        (lambda out, x: out[:4], "must be float32 [8, 96]"),
        (lambda out, x: out.half(), "the output is float16"),
    ],
)
def test_failures_say_what_such_errors_mean(change: Callable[[Tensor, Tensor], Tensor], words: str) -> None:
    task = load("silu", "cpu")
    x = draw(CELL, SEED)
    out = torch.nn.functional.silu(x[0])
    assert compare(task, CELL, x, (out,)).status == "pass"
    result = compare(task, CELL, x, (change(out, x[0]),))
    assert result.status == "fail" and words in result.detail and len(result.detail) < 400, result.detail


def test_huge_cells_are_compared_in_pieces_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    task = load("layernorm", "cpu")
    cell = next(cell for cell in task.cells if cell.inputs[0].shape == (5, 1000))
    inputs = draw(cell, SEED)
    right = task.eager(*inputs)
    wrong = right.clone()
    wrong[4, 7] += 1.0
    whole = [compare(task, cell, inputs, (out,)) for out in (right, wrong)]
    monkeypatch.setattr("referee.answers.compare.PIECE_ELEMENTS", 2000)
    pieces = [compare(task, cell, inputs, (out,)) for out in (right, wrong)]
    assert [result.status for result in pieces] == [result.status for result in whole] == ["pass", "fail"]
    assert "row 4, column 7" in pieces[1].detail and "row 4, column 7" in whole[1].detail


def test_empty_outputs_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    task: Task = load("silu", "cpu")
    cell = next(cell for cell in task.cells if cell.inputs[0].shape[0] == 0)
    inputs = draw(cell, SEED)
    assert compare(task, cell, inputs, (inputs[0].clone(),)).status == "pass"


def test_a_row_that_owes_its_answer_to_one_input_may_be_as_far_off_as_that_input_s_rounding_makes_it() -> None:
    """exp(58.8) by way of exp2 is off by some 2^-18: a row in which nothing else counts must be allowed that at every column."""
    task = load("swiglu", "cpu")
    columns = 64
    gate, up = torch.full((columns, columns), -58.8), torch.diag(torch.full((columns,), -8.0))
    specs = {name: TensorSpec(name, tuple(gate.shape), "float32", (columns, 1)) for name in ("gate", "up", "out")}
    cell = replace(task.required[0], inputs=(specs["gate"], specs["up"]), outputs=(specs["out"],))
    (expected,) = expectations(task, cell, (gate, up))
    value, budget = expected.value.diagonal(), expected.budget.diagonal()
    assert ((budget / value.abs()) > 2.0**-18).all()
    powers = torch.exp2(-gate * 1.4426950408889634)
    for off in (-(2.0**-19), 2.0**-19):
        answer = gate / (1 + powers * (1 + off)) * up
        assert compare(task, cell, (gate, up), (answer,)).status == "pass"
    assert compare(task, cell, (gate, up), (gate / (1 + powers * (1 + 2.0**-14)) * up,)).status == "fail"


@pytest.mark.parametrize("op", ["cross_entropy", "entropy"])
def test_of_a_single_logit_too_the_magnitude_counts(op: str) -> None:
    """Its largest one is rounded before it is taken away, where logits are multiplied for powers of two."""
    task = load(op, "cpu")
    cell = next(cell for cell in task.cells if cell.inputs[0].shape == (3, 1))
    inputs = draw(cell, 3)
    (expected,) = expectations(task, cell, inputs)
    assert bool((expected.budget >= FLOOR * EPS32 * inputs[0].double().abs().flatten()).all())
    assert bool((expected.value == 0).all())


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "samples"),
    [("float32", 1023, 33, 4), ("float32", 1024, 33, 8), ("float16", 1024, 33, 2), ("float32", 5, 32, 16), ("bfloat16", 5, 32, 2)],
)
def test_of_answers_in_fp32_more_samples_are_taken_and_most_of_many_rows_or_few_columns(
    dtype: Dtype, rows: int, columns: int, samples: int
) -> None:
    op, asked = ops.get("layernorm"), list[Tensor]()

    def noted(*inputs: Tensor) -> Tensor:
        asked.append(inputs[0])
        return exact(*inputs)

    task = load("layernorm", "cpu")
    exact: Candidate = task.oracle
    cell = cell_of(op, Draft(rows, columns, dtype, "mixed"))
    (found,) = expectations(replace(task, oracle=noted), cell, task.inputs(cell, 3))
    assert len(asked) == 1 + samples and bool((found.budget > 0).all())
    assert len({tuple(one[0].tolist()) for one in asked}) == 1 + samples, "each moves other inputs"


@pytest.mark.parametrize("columns", [3, 4, 6])
def test_a_layernorm_of_few_columns_far_from_zero_passes_at_any_seed(columns: int) -> None:
    """As most samples may move all columns alike there, which the mean takes away."""
    task = load("layernorm", "cpu")
    for seed in range(80):
        cell = cell_of(task.op, Draft(3, columns, "float32", "shifted", (0.5, 1.0, 64.0)[seed % 3]))
        x, w, b = draw(cell, seed)
        total = x[:, 0].clone()
        for column in range(1, columns):
            total += x[:, column]
        moved = x - (total / columns)[:, None]
        answer = moved * torch.rsqrt(moved.square().mean(-1, keepdim=True) + 1e-5) * w + b
        (expected,) = expectations(task, cell, (x, w, b))
        assert float(((answer.double() - expected.value).abs() / expected.budget).max()) < 0.5, seed


@pytest.mark.parametrize(("seed", "scaled"), [(1, ()), (1, ("b",)), (1, ("w",)), (815242933241682245, ("residual", "w", "b"))])
def test_right_kernels_pass_where_few_elements_of_a_row_are_not_saturated(seed: int, scaled: tuple[str, ...]) -> None:
    task = load("add_layernorm_sigmoid", "gpu")
    cell = cell_of(task.op, Draft(10692, 128, "float32", "shifted", 64.0, scaled=scaled))
    x, residual, w, b = inputs = task.inputs(cell, seed, "cpu")
    h = x + residual
    d = h - tree_sum(h) / h.shape[-1]
    answer = torch.sigmoid(d * torch.rsqrt(tree_sum(d * d) / h.shape[-1] + 1e-5) * w + b)
    (expected,) = expectations(task, cell, inputs)
    share = (answer.double() - expected.value).abs() / expected.budget
    assert float(share.max()) < 0.6, "a right kernel comes near the budget: another one would be over it"
