"""A user's reference is evaluated by several judge threads: each gets the values that one thread
alone would get.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch

from referee.ops.catalogue import catalogue
from referee.ops.recipes import RECIPES
from referee.ops.spec import Cell
from referee.ops.task import Task, load
from referee.ops.values import draw
from tests.referee.own_reference import load_user

THREADS, DRAWS = 4, 60

MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(24, 24) for _ in range(6)])

    def forward(self, x):
        return self.layers(x)

def get_inputs():
    return [torch.randn(8, 24)]
"""

OWN_GLOBALS = """
import torch

KEPT = {}

def f(x):
    KEPT["x"] = x
    for _ in range(20):
        KEPT["x"] = KEPT["x"] * 1.01
    return KEPT["x"]

def get_inputs():
    return [torch.randn(8, 24)]
"""

NARROW = """
import torch
torch.set_default_dtype(torch.bfloat16)

def f(x):
    for _ in range(20):
        x = x + torch.ones(24) / 3
    return x

def get_inputs():
    return [torch.randn(8, 24, dtype=torch.bfloat16)]
"""


def written(folder: Path, text: str) -> Task:
    file = folder / "reference.py"
    file.write_text(dedent(text))
    return load_user(file, None, "cpu")


def at_once(evaluate: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(evaluate, range(DRAWS)))


@pytest.mark.parametrize(
    "text", [MODEL, OWN_GLOBALS, NARROW], ids=["parameters", "globals", "default dtype"]
)
def test_threads_expect_what_one_thread_expects(tmp_path: Path, text: str) -> None:
    """A module's parameters, a file's globals and the default dtype are shared by all threads of
    the judge.
    """
    task = written(tmp_path, text)
    inputs = [task.inputs(task.cells[0], seed) for seed in range(DRAWS)]
    for function in (task.oracle, task.eager):
        alone = [function(*one) for one in inputs]
        together = at_once(partial(lambda function, number: function(*inputs[number]), function))
        wrong = [
            number for number in range(DRAWS) if not torch.equal(alone[number], together[number])
        ]
        assert not wrong, f"{len(wrong)} of {DRAWS} expected values differ"
    assert torch.get_default_dtype() == torch.float32


def test_the_catalogue_ignores_the_default_dtype() -> None:
    """While a user's reference is evaluated under its own default dtype, other threads draw and
    expect the same values.
    """
    tasks = [load(op.name, "cpu") for op in catalogue()]
    cells = [
        (task, replace(task.required[0], values=recipe)) for task in tasks for recipe in RECIPES
    ]
    usual = [drawn_and_expected(task, cell) for task, cell in cells]
    torch.set_default_dtype(torch.bfloat16)
    try:
        for (task, cell), values in zip(cells, usual, strict=True):
            for one, other in zip(drawn_and_expected(task, cell), values, strict=True):
                assert torch.equal(one.nan_to_num(), other.nan_to_num()), (
                    task.op.name,
                    cell.values,
                )
    finally:
        torch.set_default_dtype(torch.float32)


def drawn_and_expected(task: Task, cell: Cell) -> tuple[torch.Tensor, ...]:
    inputs = draw(cell, 1)
    return *inputs, task.oracle(*inputs), task.eager(*inputs)
