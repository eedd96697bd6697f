"""At which sizes a reference is judged: symbols of the user's, and fixed sizes that Triton's
interpreter has no room for.
"""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

from referee.asked_shape import feasible
from referee.ops.task import Task
from referee.problem import Problem, TaskName, too_large
from referee.reference.asked import Asked
from referee.reference.exploring import MOST_ELEMENTS
from referee.reference.family import Family
from referee.reference.load import load_reference
from referee.reference.unusable import TooLarge, UnusableReference
from tests.referee.own_reference import load_user

FILE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

def scale(x, w):
    return x * w

def softmax(x):
    return torch.softmax(x, -1)

def middle(x):
    return x.mean(1)

def rotated(q, cos):
    half = q.shape[-1] // 2
    return torch.cat([q[..., :half] * cos, q[..., half:] * cos], -1)

def grouped(x):
    return x.view(x.shape[0], 8, -1).mean(-1)

def transformed(x):
    assert x.shape[-1] & (x.shape[-1] - 1) == 0, "a power of two"
    return x * 2

def picked(table, index):
    return table[index]

def loss(x, y):
    return F.cross_entropy(x, y)

def scan(x):
    return x.cumsum(1)

def placed(x):
    return x * (torch.arange(x.shape[0]) // 2)[:, None]

def shifted(x):
    return torch.cat([x[1:], x[:1]])

def tied(x):
    return x.view(-1, 4096 * 4096) * 2

class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.norm = nn.LayerNorm(shape)

    def forward(self, x):
        return self.norm(x)

def get_init_inputs():
    return [(64, 256, 256)]
"""


def family(folder: Path, name: str | None, *inputs: str) -> Family:
    file = folder / "reference.py"
    file.write_text(FILE)
    return load_reference(Asked(str(file), name, inputs)).examples[0].family


def task(folder: Path, name: str | None, profile: str, *inputs: str) -> Task:
    file = folder / "reference.py"
    file.write_text(FILE)
    return load_user(file, name, "gpu" if profile == "gpu" else "cpu", *inputs)


def test_a_symbol_is_judged_at_several_sizes(tmp_path: Path) -> None:
    """Odd ones, powers of two, one row, many rows and wide rows; and one that a model has for the
    timing.
    """
    found = family(tmp_path, "scale", "x=bf16[B,N] w=bf16[N]")
    sizes = [(one["B"], one["N"]) for one in (found.base, *found.around)]
    rows, columns = {row for row, _ in sizes}, {column for _, column in sizes}
    assert {1, 2, 3, 17, 300} <= rows and {1, 129, 256, 1000, 4096, 8193, 16_385} <= columns
    assert dict(found.timed) == {"B": 8192, "N": 4096} and found.batch == {"B", "N"}
    assert all(
        prod(shape) <= MOST_ELEMENTS
        for one in (found.base, *found.around)
        for shape in found.shapes(one)
    )


def test_no_symbol_has_a_fixed_size_by_chance(tmp_path: Path) -> None:
    """PyTorch traces dimensions of one size as one dimension, and a graph would confuse them."""
    base = family(tmp_path, "scale", "x=f32[B,3,C,5] w=f32[3,C,5]").base
    assert len({base["B"], base["C"], 3, 5}) == 4


def test_cells_come_at_all_sizes_and_the_timed_one_on_a_gpu(tmp_path: Path) -> None:
    small, large = (task(tmp_path, "softmax", profile, "x=bf16[B,N]") for profile in ("cpu", "gpu"))
    assert small.bench is None and all(map(feasible, small.cells))
    assert large.bench is not None and large.bench.inputs[0].shape == large.bench.outputs[
        0
    ].shape == (8192, 4096)
    assert [cell for cell in large.cells if cell.role != "bench"] == list(small.cells)
    assert len({cell.inputs[0].shape for cell in small.cells}) > 8


@pytest.mark.parametrize(
    ("name", "inputs", "symbol", "multiple"),
    [
        ("rotated", "q=f32[B,D] cos=f32[B,D/2]", "D", 2),
        ("grouped", "x=f32[B,N]", "N", 8),
        ("scale", "x=f32[B,N] w=f32[N]", "N", 1),
    ],
)
def test_a_size_has_the_multiples_that_the_reference_takes(
    tmp_path: Path, name: str, inputs: str, symbol: str, multiple: int
) -> None:
    found = family(tmp_path, name, inputs)
    assert found.multiples[symbol] == multiple
    assert all(one[symbol] % multiple == 0 for one in (found.base, *found.around))


def test_sizes_of_the_timing_may_be_given(tmp_path: Path) -> None:
    assert dict(family(tmp_path, "softmax", "x=bf16[B,N] B=64 N=1024").timed) == {
        "B": 64,
        "N": 1024,
    }


@pytest.mark.parametrize(
    ("name", "inputs", "kept", "batch"),
    [
        ("softmax", "x=bf16[B,2048,4096]", {"size4096": 4096}, {"B", "size2048"}),
        ("softmax", "x=f32[4096,393216]", {}, {"size4096"}),
        ("middle", "x=f32[128,4096,4095]", {"size4095": 4095}, {"size128", "size4095"}),
        ("scan", "x=f32[32768,32768]", {}, {"first32768"}),
        ("loss", "x=f32[32768,4096] y=i64[32768]", {"size4096": 4096}, set()),
        (None, "x=f32[16,64,256,256]", {}, {"size16"}),
    ],
)
def test_large_fixed_sizes_are_judged_at_smaller_ones(
    tmp_path: Path, name: str | None, inputs: str, kept: dict[str, int], batch: set[str]
) -> None:
    """Batches first; a row that fits keeps its length; a module whose parameters are too large is
    made smaller.
    """
    found = family(tmp_path, name, inputs)
    assert found.elements(found.base) <= MOST_ELEMENTS and found.reduced
    assert {
        symbol: size for symbol, size in found.base.items() if found.numbers.get(symbol) == size
    } == kept
    assert batch <= found.batch | set(kept)
    judged = task(tmp_path, name, "cpu", inputs)
    assert any(feasible(cell) for cell in judged.cells)
    assert any("without a GPU judged at smaller sizes" in words for words in judged.reservations)


def test_sizes_that_cannot_be_made_smaller_are_told(tmp_path: Path) -> None:
    """With the memory that they need; a GPU judges them, as far as the reference can be evaluated."""
    family(tmp_path, "tied", "x=f32[4096,4096]")
    task = TaskName("tied", str(tmp_path / "reference.py"), "tied", ("x=f32[4096,4096]",))
    assert (
        "16,777,216 elements (0.06 GiB), and Triton's interpreter takes 262,144 at most"
        in too_large(Problem(task))
    )
    with pytest.raises(
        TooLarge,
        match=r"1,073,741,824 elements \(4.0 GiB\), and it is evaluated with 268,435,456 at most",
    ):
        family(tmp_path, "tied", "x=f32[262144,4096]")


@pytest.mark.parametrize(
    ("name", "inputs", "words"),
    [
        ("scale", "x=f32[B,N] w=f32[M]", "the reference fails on inputs of shapes"),
        ("softmax", "y=f32[B,N]", "has no argument 'y'; its arguments are x"),
        ("scale", "x=f32[B,N]", "leaves out w, which the reference needs"),
    ],
)
def test_inputs_that_the_reference_refuses_are_told(
    tmp_path: Path, name: str, inputs: str, words: str
) -> None:
    with pytest.raises(UnusableReference) as refused:
        family(tmp_path, name, inputs)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_integers_number_what_the_reference_says(tmp_path: Path) -> None:
    """A range may be given; else it is found by trying, and follows the size that it numbers."""
    for inputs in ("table=f32[V,8] index=i64[N]", "table=f32[V,8] index=i64[N]:0..V"):
        judged = task(tmp_path, "picked", "gpu", inputs)
        recipes = {cell.inputs[0].shape[0]: cell.values.split("|")[1] for cell in judged.cells}
        assert len(recipes) > 3 and all(
            recipe == f"index:{rows}" for rows, recipe in recipes.items()
        )


def test_several_sets_are_judged(tmp_path: Path) -> None:
    judged = task(tmp_path, "softmax", "cpu", "x=bf16[B,N]", "x=f32[B,64]")
    assert {cell.inputs[0].dtype for cell in judged.cells} == {"bfloat16", "float32"}
    assert {
        cell.inputs[0].shape[1] for cell in judged.cells if cell.inputs[0].dtype == "float32"
    } == {64}


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [(":0..1", 0.0, 1.0), (":-3..-2", -3.0, -2.0), (":0|1", 0.0, 1.0), (":uniform", 0.0, 256.0)],
)
def test_values_stay_within_what_the_text_says(
    tmp_path: Path, values: str, low: float, high: float
) -> None:
    """A range is a domain: no magnitude or sign is tried beyond it; of `uniform` values only the
    sign is known.
    """
    judged = task(tmp_path, "softmax", "cpu", f"x=f32[B,N]{values}")
    drawn = [
        judged.inputs(cell, 1)[0]
        for cell in judged.cells
        if "signed" not in cell.name and "huge" not in cell.name
    ]
    assert all(low <= float(x.min()) and float(x.max()) <= high for x in drawn)
    beyond = any(
        float(judged.inputs(cell, 1)[0].abs().max()) > max(abs(low), abs(high))
        for cell in judged.cells
    )
    assert not beyond or values == ":uniform"


@pytest.mark.parametrize(
    ("name", "batch"), [("softmax", {"B"}), ("scan", {"B"}), ("placed", {"N"}), ("shifted", {"N"})]
)
def test_a_batch_is_a_size_whose_indices_stand_alone(
    tmp_path: Path, name: str, batch: set[str]
) -> None:
    """Neither a size that is reduced or scanned, nor one whose answers depend on the place."""
    assert family(tmp_path, name, "x=f32[B,N]").batch == batch
