"""Numbers of a reference stay arguments of `run`, are judged at several values, and may be fixed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from referee.ops.fresh_scalars import with_fresh_scalars
from referee.ops.task import Task
from referee.reference.asked import Asked
from referee.reference.load import load_reference
from referee.reference.reference import Reference
from referee.reference.unusable import InputError
from tests.referee.own_reference import load_user

FILE = """
import torch

def scaled(x, alpha, w, beta=0.5):
    return alpha * x * w + beta

def norm(x, eps=1e-6, rounds=2, dim=-1, mode=True, name="a", k=3):
    for _ in range(rounds):
        x = x * torch.rsqrt(x.square().mean(dim, keepdim=True) + eps)
    return x

def adam(p, g, m, v, lr=1e-3, betas=(0.9, 0.999), step=10):
    m.mul_(betas[0]).add_(g, alpha=1 - betas[0])
    v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
    p.sub_(lr * (m / (1 - betas[0] ** step)) / ((v / (1 - betas[1] ** step)).sqrt() + 1e-8))

def smoothed(x, smoothing=0.0):
    return x * (1 - smoothing) + x.mean(-1, keepdim=True) * smoothing if smoothing > 0 else x * 1.0
"""


def written(folder: Path) -> Path:
    file = folder / "reference.py"
    file.write_text(FILE)
    return file


def load(folder: Path, name: str, *inputs: str, fixed: tuple[str, ...] = ()) -> Reference:
    return load_reference(Asked(str(written(folder)), name, inputs, fixed))


def task(folder: Path, name: str, *inputs: str, fixed: tuple[str, ...] = ()) -> Task:
    return load_user(written(folder), name, "cpu", *inputs, fixed=fixed)


def numbers(reference: Reference) -> dict[str, tuple[float, ...]]:
    return {argument.name: argument.values for argument in reference.scalars}


def test_floats_stay_where_they_stand(tmp_path: Path) -> None:
    """A number is an argument at its place in the signature, also where it has a default."""
    reference = load(tmp_path, "scaled", "x=f32[B,N] w=f32[N] alpha=2.0")
    assert [argument.name for argument in reference.arguments] == ["x", "alpha", "w", "beta"]
    assert [argument.default for argument in reference.scalars] == [None, 0.5]
    assert all(len(argument.values) == 4 for argument in reference.scalars)
    x, w = torch.ones(2, 3), torch.ones(3)
    assert torch.equal(reference.function(x, 3.0, w, 1.0), torch.full((2, 3), 4.0))
    assert torch.equal(reference.at()(x, w), torch.full((2, 3), 2.5))


def test_numbers_that_choose_a_way_are_fixed(tmp_path: Path) -> None:
    """How often, along which dimension and what has no effect: none of it is a number that a kernel
    could follow.
    """
    reference = load(tmp_path, "norm", "x=f32[B,N]")
    assert list(numbers(reference)) == ["eps"]
    why = {one.name: one.why for one in reference.fixed}
    assert why["rounds"] == why["dim"] == "at other values the reference does something else"
    assert why["k"] == "the answers do not depend on it" and "mode" not in why
    assert {one.name: one.why for one in load(tmp_path, "smoothed", "x=f32[B,N]").fixed}[
        "smoothing"
    ].startswith("at other values")


def test_numbers_of_a_tuple_and_whole_ones_stay(tmp_path: Path) -> None:
    found = numbers(load(tmp_path, "adam", "p=f32[N] g=f32[N] m=f32[N] v=f32[N]:0..1"))
    assert list(found) == ["lr", "betas_0", "betas_1", "step"]
    assert all(0 < value < 1 for value in (*found["betas_0"], *found["betas_1"]))
    assert (
        all(isinstance(value, int) and value > 0 for value in found["step"])
        and len(found["step"]) > 1
    )


def test_a_number_may_be_fixed(tmp_path: Path) -> None:
    reference = load(tmp_path, "scaled", "x=f32[B,N] w=f32[N] alpha=2.0", fixed=("alpha=3.0",))
    assert [argument.name for argument in reference.arguments] == ["x", "w", "beta"]
    assert [(one.name, one.value, one.why) for one in reference.fixed] == [("alpha", 3.0, "--fix")]
    assert torch.equal(reference.at()(torch.ones(2, 3), torch.ones(3)), torch.full((2, 3), 3.5))


@pytest.mark.parametrize(
    ("fixed", "words"),
    [
        ("x=3", "x is a tensor"),
        ("gamma=3", "gamma is no argument; the values that can be fixed are alpha, beta"),
    ],
)
def test_only_values_of_the_call_can_be_fixed(tmp_path: Path, fixed: str, words: str) -> None:
    with pytest.raises(InputError) as refused:
        load(tmp_path, "scaled", "x=f32[B,N] w=f32[N] alpha=2.0", fixed=(fixed,))
    assert words in str(refused.value)


def test_the_user_may_say_the_values(tmp_path: Path) -> None:
    assert numbers(load(tmp_path, "scaled", "x=f32[B,N] w=f32[N] alpha=2.0|4.0|0.125"))[
        "alpha"
    ] == (2.0, 4.0, 0.125)


def test_cells_try_other_numbers(tmp_path: Path) -> None:
    """Expected values follow the numbers of a cell, and a kernel gets them at their places."""
    judged = task(tmp_path, "scaled", "x=f32[B,N] w=f32[N] alpha=2.0")
    tried = [cell for cell in judged.cells if "-scalars" in cell.name]
    assert len({cell.scalars for cell in tried}) == 3
    for cell in tried:
        alpha, beta = (scalar.value for scalar in cell.scalars)
        assert [one.name for one in cell.arguments] == ["x", "alpha", "w", "beta"]
        x, w = judged.inputs(cell, 1)
        exact = alpha * x.double() * w.double() + beta
        assert torch.allclose(judged.at(cell).oracle(x, w), exact, rtol=1e-12, atol=1e-12)
    assert judged.at(judged.cells[0]) is judged


def test_the_seed_draws_numbers_that_nobody_knows(tmp_path: Path) -> None:
    judged = task(tmp_path, "scaled", "x=f32[B,N] w=f32[N] alpha=2.0")
    first, same, other = (with_fresh_scalars(judged, seed) for seed in (1, 1, 2))
    drawn = [values_of(one) for one in (judged, first, same, other)]
    assert drawn[1] == drawn[2] and not drawn[1] & drawn[0] and not drawn[1] & drawn[3]
    assert all(
        cell.scalars == judged.scalars for cell in first.cells if "-scalars" not in cell.name
    )


def values_of(judged: Task) -> set[float]:
    return {
        scalar.value for cell in judged.cells if "-scalars" in cell.name for scalar in cell.scalars
    }


def test_an_epsilon_is_judged_where_it_changes_the_answers(tmp_path: Path) -> None:
    found = task(tmp_path, "norm", "x=f32[B,256] eps=1e-6", fixed=("rounds=2", "dim=-1", "k=3"))
    assert any(cell.name.endswith("-scalars1-tiny") for cell in found.cells)
    plain = task(tmp_path, "scaled", "x=f32[B,256] w=f32[256] alpha=2.0", fixed=("beta=0.5",))
    assert not any(cell.name.endswith("-tiny") and "scalars" in cell.name for cell in plain.cells)
