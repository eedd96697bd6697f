"""Eager and oracle are two independent forms of the same formula, and both are what the op's name
says.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from referee.ops import cells, get
from referee.ops import oracle as oracle_module
from referee.ops.grammar import ACTIVATIONS
from referee.ops.reference import eager, oracle
from referee.ops.task import Task, load
from referee.ops.values import draw
from tests.sampling import operations

NAMES = (
    *(op.name for op in operations(start=0)),
    "rmsnorm_gelu_tanh",
    "add_layernorm_silu_softplus",
)
EPS = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}
# PyTorch's own log_softmax rounds the row's sum, one at least, and its logarithm to half types on
# the CPU.
ROUNDED_TWICE = frozenset({"cross_entropy", "log_softmax"})

# Each activation in plain Python, from its textbook definition.
TEXTBOOK: dict[str, Callable[[float], float]] = {
    "gelu": lambda n: 0.5 * n * (1 + math.tanh(math.sqrt(2 / math.pi) * (n + 0.044715 * n**3))),
    "silu": lambda n: n / (1 + math.exp(-n)),
    "relu2": lambda n: max(n, 0) ** 2,
    "tanh": math.tanh,
    "sigmoid": lambda n: 1 / (1 + math.exp(-n)),
    "relu": lambda n: max(n, 0),
    "square": lambda n: n**2,
    "abs": abs,
    "softsign": lambda n: n / (1 + abs(n)),
    "hardsigmoid": lambda n: min(max(n + 3, 0), 6) / 6,
    "hardswish": lambda n: n * min(max(n + 3, 0), 6) / 6,
    "leaky_relu": lambda n: n if n > 0 else 0.01 * n,
    "relu6": lambda n: min(max(n, 0), 6),
    "hardtanh": lambda n: min(max(n, -1), 1),
    "elu": lambda n: n if n > 0 else math.expm1(n),
    "selu": lambda n: 1.0507009873554805 * (n if n > 0 else 1.6732632423543772 * math.expm1(n)),
    "softplus": lambda n: n if n > 20 else math.log1p(math.exp(n)),
    "mish": lambda n: n * math.tanh(n if n > 20 else math.log1p(math.exp(n))),
    "gelu_erf": lambda n: 0.5 * n * (1 + math.erf(n / math.sqrt(2))),
}


def row_max(values: Tensor) -> Tensor:
    return values.amax(-1, keepdim=True) if values.dim() > 1 else values


def reachable(
    task: Task, inputs: tuple[Tensor, ...], expected: Tensor, dtype: torch.dtype
) -> Tensor:
    """What one rounding to `dtype` after fp32 work may lose: half a unit in the last place, and
    fp32's share.

    fp32's share is what the exact result moves by when every input moves by four fp32 roundings (a
    backward-stable algorithm), and the rounding of intermediates of the size of the row's largest
    value, or of 1.
    """
    moved = torch.zeros_like(expected)
    for seed in range(4):
        signs = Generator().manual_seed(seed)
        nudged = [
            t.double()
            * (1 + EPS[torch.float32] * 4 * (torch.rand(t.shape, generator=signs) * 2 - 1))
            if t.is_floating_point()
            else t
            for t in inputs
        ]
        moved = torch.maximum(moved, (task.oracle(*nudged) - expected).abs())
    twice = task.op.name in ROUNDED_TWICE and dtype != torch.float32
    rounded = EPS[dtype] * (2.02 * expected.abs() + 1.0 if twice else 1.01 * expected.abs())
    return rounded + 4 * row_max(moved) + 2.0**-20 * row_max(expected.abs()).clamp(min=1.0)


@pytest.mark.parametrize("name", NAMES)
def test_eager_is_the_oracle_rounded_once(name: str) -> None:
    task = load(name, "cpu")
    for cell in task.required:
        inputs = draw(cell, 21)
        before = [tensor.clone() for tensor in inputs]
        out, expected = task.eager(*inputs), task.oracle(*inputs)
        assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))
        assert expected.dtype == torch.float64
        assert str(out.dtype) == f"torch.{cell.outputs[0].dtype}"
        assert tuple(out.shape) == tuple(expected.shape) == cell.outputs[0].shape
        error, allowed = (
            (out.double() - expected).abs(),
            reachable(task, inputs, expected, out.dtype),
        )
        assert bool((error <= allowed).all()), (cell.name, float((error / allowed).max()))


@pytest.mark.parametrize("name", NAMES)
def test_nan_and_infinity_go_the_same_way_in_both(name: str) -> None:
    task = load(name, "cpu")
    for cell in task.cells:
        if cell.values == "nonfinite":
            inputs = draw(cell, 5)
            out, expected = task.eager(*inputs), task.oracle(*inputs)
            assert torch.equal(out.isnan(), expected.isnan())
            assert torch.equal(out.isposinf(), expected.isposinf())
            assert torch.equal(out.isneginf(), expected.isneginf())


@pytest.mark.parametrize("name", NAMES)
def test_padded_offset_and_empty_inputs_give_the_same_answer(name: str) -> None:
    task = load(name, "cpu")
    for cell in task.cells:
        if cell.role == "capability" and cell.values != "nonfinite":
            inputs = draw(cell, 5)
            plain = [tensor.clone(memory_format=torch.contiguous_format) for tensor in inputs]
            torch.testing.assert_close(task.eager(*inputs), task.eager(*plain))
            assert tuple(task.oracle(*inputs).shape) == cell.outputs[0].shape


@pytest.mark.parametrize("name", NAMES)
def test_eager_traces_without_looking_at_values(name: str) -> None:
    op = get(name)
    inputs = draw(cells(op, profile="cpu")[0], 1)
    graph = make_fx(eager(op), tracing_mode="fake")(*inputs)
    torch.testing.assert_close(graph(*inputs), eager(op)(*inputs))


@pytest.mark.parametrize(
    "name",
    [
        "rmsnorm",
        "softmax",
        "add_layernorm_mish",
        "swiglu",
        "rope_interleaved",
        "cross_entropy",
        "kl_div",
    ],
)
def test_eager_compiles_as_one_graph(name: str) -> None:
    op = get(name)
    inputs = draw(cells(op, profile="cpu")[0], 1)
    compiled = torch.compile(eager(op), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), eager(op)(*inputs))


@pytest.mark.parametrize("act", sorted(ACTIVATIONS))
def test_activations_are_the_textbook_ones(act: str) -> None:
    points = [-30.0, -6.5, -3.0, -1.0, -0.3, -1e-3, 0.0, 1e-3, 0.5, 1.0, 2.9, 6.0, 19.0, 25.0]
    expected = torch.tensor([TEXTBOOK[act](point) for point in points], dtype=torch.float64)
    torch.testing.assert_close(
        oracle_module.ACTS[act](torch.tensor(points, dtype=torch.float64)),
        expected,
        rtol=1e-8,
        atol=1e-11,
    )


def test_norms_are_the_textbook_ones() -> None:
    x, w, b = [3.0, -1.0, 2.0, 0.5], [1.0, 2.0, -1.0, 0.5], [0.1, 0.2, 0.3, 0.4]
    mean = sum(x) / 4
    rms = math.sqrt(sum(v * v for v in x) / 4 + 1e-6)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in x) / 4 + 1e-5)
    rows = [torch.tensor([x]), torch.tensor(w), torch.tensor(b)]
    assert oracle(get("rmsnorm"))(*rows[:2])[0].tolist() == pytest.approx(
        [v / rms * s for v, s in zip(x, w, strict=True)]
    )
    assert oracle(get("rmsnorm_gemma"))(*rows[:2])[0].tolist() == pytest.approx(
        [v / rms * (1 + s) for v, s in zip(x, w, strict=True)]
    )
    wanted = [(v - mean) / deviation * s + t for v, s, t in zip(x, w, b, strict=True)]
    assert oracle(get("layernorm"))(*rows)[0].tolist() == pytest.approx(wanted)


def test_row_functions_are_the_textbook_ones() -> None:
    x, y = [0.5, -1.0, 2.0], [1.0, 0.0, -1.0]
    p, q = ([math.exp(v) / sum(map(math.exp, row)) for v in row] for row in (x, y))
    rows = torch.tensor([x]), torch.tensor([y])
    assert oracle(get("softmax"))(rows[0])[0].tolist() == pytest.approx(p)
    assert oracle(get("entropy"))(rows[0]).tolist() == pytest.approx(
        [-sum(v * math.log(v) for v in p)]
    )
    assert oracle(get("kl_div"))(*rows).tolist() == pytest.approx(
        [sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))]
    )
    assert oracle(get("cross_entropy"))(rows[0], torch.tensor([2])).tolist() == pytest.approx(
        [-math.log(p[2])]
    )
    assert oracle(get("cumsum"))(rows[0])[0].tolist() == pytest.approx([0.5, -0.5, 1.5])
    capped = [math.exp(30 * math.tanh(v / 30)) for v in x]
    assert oracle(get("softcap_softmax"))(rows[0])[0].tolist() == pytest.approx(
        [v / sum(capped) for v in capped]
    )


def test_rotations_turn_the_right_pairs_the_right_way() -> None:
    x = torch.tensor([[1.0, 0.0, 0.0, 2.0]])
    quarter = torch.zeros(1, 4), torch.ones(1, 4)
    assert oracle(get("rope"))(x, *quarter).tolist() == [[0.0, -2.0, 1.0, 0.0]]
    assert oracle(get("rope_interleaved"))(x, torch.zeros(1, 2), torch.ones(1, 2)).tolist() == [
        [0.0, 1.0, -2.0, 0.0]
    ]


def test_dequantisation_scales_each_row() -> None:
    q, scale = (
        torch.tensor([[-128, 127], [1, 0]], dtype=torch.int8),
        torch.tensor([[0.5], [2.0]], dtype=torch.float16),
    )
    assert eager(get("dequant_int8"))(q, scale).tolist() == [[-64.0, 63.5], [2.0, 0.0]]


def test_a_user_op_has_no_catalogue_reference() -> None:
    from dataclasses import replace

    stranger = replace(get("softmax"), name="mine", kind="function", origin="user")
    for form in (eager, oracle):
        with pytest.raises(LookupError, match="mine"):
            form(stranger)
