"""A traced function computes what the function computes, and what cannot be traced says why."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.functions.cases import CASES
from kmint_tui.graph.capture import Argument
from kmint_tui.graph.evaluate import evaluate
from kmint_tui.graph.program import OutOfScope, from_json, stage_text
from kmint_tui.graph.trace import trace
from kmint_tui.template.write import host_code
from referee.reference.grammar import parse_inputs
from referee.reference.inputs import TensorInput

SIZES = {"B": 2, "S": 3, "H": 4, "W": 5, "C": 6, "T": 7, "M": 5, "N": 24, "V": 37, "K": 3, "F": 9}
FUNCTIONS = [
    (module, name)
    for module, functions in CASES.items()
    for name in functions
    if name != "TokenNorm"
]


def arguments_of(text: str) -> list[Argument]:
    """Small inputs of a case."""
    (given,) = parse_inputs([text])
    made = []
    for number, (name, entry) in enumerate(given.entries):
        assert isinstance(entry, TensorInput)
        generator = torch.Generator().manual_seed(number)
        shape = entry.shape(SIZES)
        dtype = getattr(torch, entry.dtype)
        if dtype.is_floating_point:
            tensor = torch.rand(shape, generator=generator) + 0.1
        else:
            tensor = torch.randint(0, 2 if dtype == torch.bool else 3, shape, generator=generator)
        made.append(Argument(name, tensor.to(torch.float32 if dtype.is_floating_point else dtype)))
    return made


def tensors_of(arguments: list[Argument], dtype: torch.dtype) -> dict[str, Any]:
    values = {one.name: one.value for one in arguments}
    return {
        name: value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in values.items()
    }


@pytest.mark.parametrize(("module", "name"), FUNCTIONS, ids=[name for _, name in FUNCTIONS])
def test_a_program_computes_its_function(module: str, name: str) -> None:
    """Every step of the graph is evaluated in float64, apart from any kernel."""
    function = getattr(importlib.import_module(f"bench.functions.{module}"), name)
    arguments = arguments_of(CASES[module][name])
    program = trace(name, function, arguments)
    exact = tensors_of(arguments, torch.float64)
    expected = function(
        *(value.clone() if isinstance(value, Tensor) else value for value in exact.values())
    )
    expected = expected if isinstance(expected, tuple) else (expected,)
    found = evaluate(program, tensors_of(arguments, torch.float32), torch.float64)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one.double(), other.double(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sizes", [(2, 3, 16), (5, 1, 64)])
def test_sizes_stay_symbolic(sizes: tuple[int, ...]) -> None:
    """A program traced at one shape computes the function at another."""

    def function(x: Tensor, w: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return F.silu(a) * b * w

    program = trace(
        "f", function, [Argument("x", torch.randn(4, 7, 32)), Argument("w", torch.randn(16))]
    )
    x, w = torch.randn(*sizes), torch.randn(sizes[-1] // 2)
    (found,) = evaluate(program, {"x": x, "w": w}, torch.float64)
    torch.testing.assert_close(found, function(x.double(), w.double()), rtol=1e-5, atol=1e-6)


def test_numbers_stay_arguments() -> None:
    """A number of the signature is an argument of `run`, also where the code computes with it."""

    def function(x: Tensor, eps: float, beta: float) -> Tensor:
        return beta * x + (1 - beta) * torch.rsqrt(x * x + eps)

    program = trace(
        "f",
        function,
        [Argument("x", torch.randn(4, 8)), Argument("eps", 1e-6), Argument("beta", 0.9)],
    )
    assert program.arguments == ("x", "eps", "beta")
    assert set(program.stages[0].numbers) == {"beta", "1 - beta", "eps"}
    x = torch.randn(4, 8)
    (found,) = evaluate(program, {"x": x, "eps": 0.5, "beta": 0.25}, torch.float64)
    torch.testing.assert_close(found, function(x.double(), 0.5, 0.25), rtol=1e-5, atol=1e-6)


def _gate(x: Tensor) -> tuple[Tensor, Tensor]:
    weight, expert = torch.topk(torch.softmax(x, -1), 3, dim=-1)
    return weight / weight.sum(-1, keepdim=True), expert


def _least(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.topk(x, 2, dim=0, largest=False)


def _marked(x: Tensor) -> Tensor:
    return x.scatter(-1, x.argmax(-1, keepdim=True), -7.0)


def _gradient(x: Tensor) -> Tensor:
    loss = torch.func.vjp(lambda z: F.cross_entropy(z, torch.arange(4), reduction="none"), x)[1]
    (found,) = loss(torch.ones(4))
    return torch.as_tensor(found)


@pytest.mark.parametrize("function", [_gate, _least, _marked, _gradient])
def test_first_elements_and_scatter(function: Callable[[Tensor], Any]) -> None:
    """The first few elements of a row, one replaced element, and the gradient of a gather."""
    x = torch.randn(4, 9, generator=torch.Generator().manual_seed(3))
    program = trace("f", function, [Argument("x", x)])
    expected = function(x)
    expected = expected if isinstance(expected, tuple) else (expected,)
    found = evaluate(program, {"x": x}, torch.float32)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.to(other.dtype), other, rtol=1e-5, atol=1e-6)


def test_many_first_elements_are_out_of_scope() -> None:
    with pytest.raises(OutOfScope, match="the first 20 elements"):
        trace("f", lambda x: torch.topk(x, 20)[0], [Argument("x", torch.randn(4, 32))])


def test_a_branch_on_a_number_is_named() -> None:
    def function(x: Tensor, power: int) -> Tensor:
        return x if power == 1 else x.exp()

    with pytest.raises(OutOfScope, match="--fix power=1"):
        trace("f", function, [Argument("x", torch.randn(4, 8)), Argument("power", 1)])


def _matmul(x: Tensor) -> Tensor:
    return x @ x.t()


def _random(x: Tensor) -> Tensor:
    return F.dropout(x, 0.5, training=True)


def _by_value(x: Tensor) -> Tensor:
    return x * 2 if bool(x.sum() > 0) else x


def _nonzero(x: Tensor) -> Tensor:
    return x[x > 0]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_matmul, "mm"),
        (_random, "bernoulli|rand|dropout"),
        (_by_value, "values decide"),
        (_nonzero, "values decide|mask|nonzero"),
    ],
)
def test_out_of_scope_says_why(function: Callable[[Tensor], Tensor], words: str) -> None:
    with pytest.raises(OutOfScope, match=words):
        trace("f", function, [Argument("x", torch.randn(4, 4))])


def test_out_of_scope_names_the_line() -> None:
    with pytest.raises(OutOfScope, match=r"test_trace.py, line \d+: `return x @ x.t\(\)`"):
        trace("f", _matmul, [Argument("x", torch.randn(4, 4))])


def test_a_program_survives_json() -> None:
    program = trace("f", lambda x: torch.softmax(x, -1), [Argument("x", torch.randn(4, 8))])
    assert from_json(program.to_json()) == program


def test_equal_functions_have_equal_text() -> None:
    """Names of arguments, and whether rows are batched, do not show in a stage's text."""
    one = trace("f", lambda x: torch.softmax(x, -1), [Argument("x", torch.randn(4, 8))])
    other = trace("g", lambda scores: scores.softmax(2), [Argument("scores", torch.randn(2, 2, 8))])
    assert stage_text(one.stages[0]) == stage_text(other.stages[0])


def test_a_choice_by_a_negation_has_no_negation() -> None:
    """Code that hides what a mask does not keep has the same steps as code that keeps the rest."""
    x, mask = torch.randn(4, 8), torch.rand(4, 8) > 0.5
    arguments = [Argument("x", x), Argument("mask", mask)]
    hidden = trace("f", lambda x, mask: x.masked_fill(~mask, -3.0), arguments)
    kept = trace("f", lambda x, mask: torch.where(mask, x, -3.0), arguments)
    assert stage_text(hidden.stages[0]) == stage_text(kept.stages[0])
    assert " not " not in stage_text(hidden.stages[0])


def test_what_a_comparison_keeps_stands_before_a_number() -> None:
    """Also in code that names first what is left out; NaN is equal to nothing."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        known = torch.where(y != -100, x, 0.25)
        return known + torch.where(y == -100, 2.0, known * 3) + torch.where(y != -100, 5.0, x)

    x, y = torch.randn(4, 8), torch.tensor([[-100, 1], [3, torch.nan]]).repeat(2, 4)
    program = trace("f", function, [Argument("x", x), Argument("y", y)])
    lines = program.stages[0].lines
    assert sorted(line.op for line in lines if line.op in ("eq", "ne")) == ["eq", "ne"]
    assert all(line.arguments[1].startswith("v") for line in lines if line.op == "where")
    (found,) = evaluate(program, {"x": x, "y": y}, torch.float64)
    torch.testing.assert_close(found, function(x.double(), y))


def _partial(x: Tensor, cos: Tensor) -> Tensor:
    head, rest = x.chunk(2, -1)
    a, b = head.chunk(2, -1)
    return torch.cat((torch.cat((a * cos - b, b * cos + a), -1), rest), -1)


def test_what_is_only_copied_has_a_stage_of_its_own() -> None:
    x, cos = torch.randn(4, 16), torch.randn(4)
    program = trace("f", _partial, [Argument("x", x), Argument("cos", cos)])
    assert [len(stage.stores) for stage in program.stages] == [2, 2]
    assert {line.op for line in program.stages[1].lines} == {"load"} and program.main == 0
    (found,) = evaluate(program, {"x": x, "cos": cos}, torch.float64)
    torch.testing.assert_close(found, _partial(x.double(), cos.double()))


def test_a_tanh_that_is_only_scaled_is_exact() -> None:
    """Near zero, and far from it, where nothing overflows. In a sum the short form is enough."""
    x = torch.tensor([1e-6, -3e-3, 0.0, 0.4, -20.0, 1e4, -1e30]).repeat(2, 1)

    def capped(x: Tensor) -> Tensor:
        return 30.0 * torch.tanh(x / 30.0)

    program = trace("f", capped, [Argument("x", x)])
    assert "tanh" not in {line.op for line in program.stages[0].lines}
    (found,) = evaluate(program, {"x": x}, torch.float32)
    torch.testing.assert_close(found.double(), capped(x.double()), rtol=5e-7, atol=0)
    short = [
        trace("f", capped, [Argument("x", x.bfloat16())]),
        trace("f", lambda x: (1 + torch.tanh(x)) * x, [Argument("x", x)]),
    ]
    assert all("tanh" in {line.op for line in one.stages[0].lines} for one in short)


def test_a_loss_of_each_row_is_one_tensor_between_stages() -> None:
    x, y = torch.randn(4, 8), torch.tensor([1, -100, 7, 0])
    program = trace("f", F.cross_entropy, [Argument("x", x), Argument("y", y)])
    assert len(program.stages) == 2 and len(program.temporaries) == 1
    (found,) = evaluate(program, {"x": x, "y": y}, torch.float64)
    torch.testing.assert_close(found, F.cross_entropy(x.double(), y))


def test_a_mean_of_all_takes_two_stages() -> None:
    program = trace("f", lambda x: (x * x).mean(), [Argument("x", torch.randn(4, 8))])
    assert [len(stage.stores) for stage in program.stages] == [1, 1]
    assert "launch0(" in host_code(program) and "launch1(" in host_code(program)


def test_a_function_that_changes_its_argument_gives_a_new_tensor() -> None:
    def function(x: Tensor) -> Tensor:
        x.mul_(2)
        return x

    x = torch.randn(4, 8)
    program = trace("f", function, [Argument("x", x)])
    assert program.results == ("y0",) and "x" not in program.stages[0].writes
    (found,) = evaluate(program, {"x": x}, torch.float64)
    torch.testing.assert_close(found, 2 * x.double())


def test_a_function_that_returns_nothing_has_no_program() -> None:
    """Its kernel would read what it has changed already."""

    def function(x: Tensor) -> None:
        x.copy_(x.flip(1))

    with pytest.raises(OutOfScope, match="returns no tensor"):
        trace("f", function, [Argument("x", torch.randn(4, 8))])
