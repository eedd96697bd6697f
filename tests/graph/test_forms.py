"""Windows, parts of different sizes, bits and rotations: the graph computes what PyTorch does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kmint_tui.graph.capture import Argument
from kmint_tui.graph.evaluate import evaluate
from kmint_tui.graph.program import OutOfScope, Program, stage_text
from kmint_tui.graph.trace import trace, traced_reference
from kmint_tui.template.statements import pointwise_statements
from referee.reference.asked import Asked


def exclusive(x: Tensor) -> Tensor:
    return torch.cat((torch.zeros_like(x[:, :1]), x), dim=1)[:, :-1].cumsum(1)


def unlike_pieces(x: Tensor) -> Tensor:
    return torch.cat((x[:, :3], x.exp(), x[:, 5:]), dim=1)


def partly_rotated(x: Tensor) -> Tensor:
    turned, kept = x[..., :8], x[..., 8:]
    one, other = turned.chunk(2, -1)
    return torch.cat((turned + torch.cat((-other, one), -1), kept), -1)


def interleaved(x: Tensor) -> Tensor:
    table = torch.zeros_like(x)
    table[:, 0::2] = torch.sin(x[:, 0::2])
    table[:, 1::2] = torch.cos(x[:, 1::2])
    return x + table


def written_parts(x: Tensor) -> Tensor:
    made = x * 2
    made[:, 2:6] = x[:, :4]
    made[:, 7] = 1.0
    return made


def positions(x: Tensor) -> Tensor:
    return x + torch.arange(0, 2 * x.shape[1], 2)


def unpacked(x: Tensor) -> Tensor:
    whole = (x * 100).to(torch.int32)
    return torch.stack((whole & 0xF, (whole >> 4) & 0xF, whole & 0xF0, whole << 2, ~whole), -1)


FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "max_pool": lambda x: F.max_pool2d(x[None, None], 2),
    "max_pool_padded": lambda x: F.max_pool2d(x[None, None], 3, stride=2, padding=1),
    "max_pool_dilated": lambda x: F.max_pool2d(x[None, None], 3, stride=1, dilation=2),
    "avg_pool": lambda x: F.avg_pool2d(x[None, None], (2, 3), stride=1),
    "avg_pool_1d": lambda x: F.avg_pool1d(x[None], 4),
    "avg_pool_padded": lambda x: F.avg_pool2d(x[None, None], 3, 1, 1),
    "adaptive_max": lambda x: F.adaptive_max_pool2d(x[None, None], (1, 2)),
    "adaptive_avg": lambda x: F.adaptive_avg_pool2d(x[None, None], 2),
    "exclusive": exclusive,
    "unlike_pieces": unlike_pieces,
    "partly_rotated": partly_rotated,
    "interleaved": interleaved,
    "written_parts": written_parts,
    "positions": positions,
    "rolled": lambda x: torch.roll(x, (3, -1), (1, 0)),
    "unpacked": unpacked,
    "diagonal": lambda x: torch.diagonal(x[:, None] * x[..., None], 1, 1, 2),
    "class_of_each": lambda x: F.one_hot((x > 0).long(), x.shape[1]) * x[..., None],
    "one_hot": lambda x: F.one_hot((x > 0).long(), 4),
    "hyperbolic": lambda x: torch.sinh(x) + torch.cosh(x) + torch.tan(x) + torch.atanh(x / 9),
}


def computed(program: Program, given: Tensor) -> Tensor:
    (found,) = evaluate(program, {program.arguments[0]: given}, torch.float64)
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_form_computes_its_function(name: str) -> None:
    """The graph is traced at one shape, and computes the function at another."""
    function = FUNCTIONS[name]
    program = trace(name, function, [Argument("x", torch.ones(6, 12))])
    assert not program.notes, "sizes stay symbolic"
    x = torch.randn(10, 24, generator=torch.Generator().manual_seed(1))
    expected = function(x)
    found = computed(program, x)
    assert found.shape == expected.shape
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-5, atol=1e-5)


def test_unlike_pieces_are_written_without_conditions() -> None:
    """Each piece has its own loops, so no element is chosen by its position."""
    for function in (unlike_pieces, partly_rotated):
        program = trace("f", function, [Argument("x", torch.ones(6, 12))])
        lines = [line.op for stage in program.stages for line in stage.lines]
        assert len(program.stages) > 1 and not {"where", "minimum"} & set(lines)


def test_unlike_pieces_are_reduced_in_one_stage() -> None:
    """A row that a reduction needs as a whole stays one row."""

    def function(x: Tensor) -> Tensor:
        return torch.cat((x[:, :5], x.exp()), dim=1).softmax(-1)

    program = trace("f", function, [Argument("x", torch.ones(6, 12))])
    assert len(program.stages) == 1
    x = torch.randn(7, 15)
    torch.testing.assert_close(computed(program, x), function(x.double()), rtol=1e-5, atol=1e-6)


def test_numbers_that_a_form_multiplies_stay_arguments() -> None:
    def step(x: Tensor, alpha: float, rate: float) -> Tensor:
        return F.elu(x, alpha=alpha) - x * (-rate / (1 - 0.9**3))

    arguments = [Argument("x", torch.ones(4, 8)), Argument("alpha", 1.0), Argument("rate", 1e-3)]
    program = trace("step", step, arguments)
    x = torch.randn(3, 8)
    (found,) = evaluate(program, {"x": x, "alpha": 0.5, "rate": 2e-2}, torch.float64)
    torch.testing.assert_close(found.float(), step(x, 0.5, 2e-2))


def test_a_number_made_from_two_arguments_names_the_remedy() -> None:
    arguments = [Argument("x", torch.ones(4, 8)), Argument("a", 3.0), Argument("b", 5.0)]
    with pytest.raises(OutOfScope, match="--fix b=5.0"):
        trace("both", lambda x, a, b: x * (a * b), arguments)


def test_different_fixed_sizes_stay_different(tmp_path: Path) -> None:
    """16 and 64 are both made smaller for a CPU, but never one size."""
    path = tmp_path / "mine.py"
    path.write_text("def norm(x):\n    return x / (x * x).mean(1, keepdim=True).sqrt()\n")
    program = traced_reference(Asked(str(path), "norm", ("x=f32[16,64,64,64]",)))
    x = torch.randn(2, 3, 3, 3)
    torch.testing.assert_close(
        computed(program, x).float(), x / (x * x).mean(1, keepdim=True).sqrt()
    )


def test_as_many_groups_as_channels_in_one_give_the_usual_text() -> None:
    def text(groups: int) -> str:
        arguments = [Argument(name, torch.ones(64)) for name in ("weight", "bias")]
        program = trace(
            "norm",
            lambda x, weight, bias: F.group_norm(x, groups, weight, bias),
            [Argument("x", torch.ones(3, 64, 5, 7)), *arguments],
        )
        return stage_text(replace(program.stages[0], example=(1, 1)))

    assert text(8) == text(4)


class _Truncated(int):
    """An integer that divides as Triton's do: to zero."""

    def __mod__(self, other: int) -> _Truncated:
        return _Truncated(int(self) - int(int(self) / int(other)) * int(other))

    def __floordiv__(self, other: int) -> _Truncated:
        return _Truncated(int(int(self) / int(other)))

    def __add__(self, other: int) -> _Truncated:
        return _Truncated(int(self) + int(other))

    def __sub__(self, other: int) -> _Truncated:
        return _Truncated(int(self) - int(other))


@pytest.mark.parametrize(("op", "expected"), [("mod", -7 % 4), ("floor_div", -7 // 4)])
def test_integers_are_divided_downwards(op: str, expected: int) -> None:
    def function(x: Tensor) -> Tensor:
        return x % 4 if op == "mod" else torch.div(x, 4, rounding_mode="floor")

    program = trace(op, function, [Argument("x", torch.ones(4, 8, dtype=torch.int64))])
    (line,) = (one for one in program.stages[0].lines if one.op == op)
    (statement,) = pointwise_statements(line, str)
    given = {line.arguments[0]: _Truncated(-7), line.arguments[1]: _Truncated(4)}
    assert eval(statement.partition(" = ")[2], given) == expected
