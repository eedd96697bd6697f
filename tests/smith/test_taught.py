"""The embedded smith reads forms that training had often, and its answer computes the function."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kmint_tui.graph.capture import Argument
from kmint_tui.graph.operations import catalogue_names, catalogue_program
from kmint_tui.graph.program import Program, Stage, stage_text
from kmint_tui.graph.trace import trace
from kmint_tui.minting.drafts import DraftBook
from kmint_tui.smith.events import DraftDone
from kmint_tui.smith.taught import MOST_STORES, is_usual, taught
from kmint_tui.template.frame import Settings
from kmint_tui.template.structures import kernel_source, structures_of
from kmint_tui.template.write import program_source

ROOT = Path(__file__).parents[2]
NUMBERS = {"alpha": 1.5, "low": -0.4, "high": 0.6}
NEWER = {"moe_gate"}
"""Operations that joined the catalogue after the smith's edition, with forms that it never read."""


def clamped(x: Tensor, alpha: float, low: float, high: float) -> Tensor:
    return x.clamp(low, high) * torch.sigmoid(alpha * x)


def nibbles(x: Tensor) -> Tensor:
    whole = (x * 40).abs().to(torch.uint8)
    return torch.stack(((whole & 0xF).float(), (whole >> 4).float()), -1).flatten(-2)


def parity(x: Tensor) -> Tensor:
    return torch.remainder(x, 0.25) + torch.where(torch.arange(x.shape[-1]) > 3, -5.0, x)


def modulated(x: Tensor) -> Tensor:
    one, other, third = x.chunk(3, -1)
    return one * other + torch.sin(third)


def three(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean = x.mean(-1)
    return x - mean[:, None], mean, x.amax(-1)


def window(x: Tensor) -> Tensor:
    row, column = torch.arange(8)[:, None], torch.arange(24)[None]
    return x.masked_fill((column > row + 2) | (row - column >= 4), -1e4)


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1, keepdim=True) / 127
    return torch.floor(x / scale).to(torch.int8), scale


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "clamped": clamped,
    "nibbles": nibbles,
    "parity": parity,
    "modulated": modulated,
    "three": three,
    "rounded": rounded,
    "window": window,
    "first": lambda x: torch.topk(x, 2, dim=-1),
    "pool": lambda x: F.avg_pool2d(x.view(2, 4, 4, 6), 2),
    "shuffle": lambda x: F.pixel_shuffle(x.view(2, 4, 4, 6), 2),
    "mirrored": lambda x: x.flip(0) * x,
    "moved": lambda x: (x * 2, x + 1, x * x),
}
STRUCTURES = [
    (name, structure)
    for name, function in FUNCTIONS.items()
    for structure in ("flat", "grid", "tile", "row", "persist")
]


def program(name: str) -> Program:
    numbers = [Argument(key, value) for key, value in NUMBERS.items()]
    given = [Argument("x", torch.randn(8, 24)), *(numbers if name == "clamped" else [])]
    return trace(name, FUNCTIONS[name], given)


def main_of(name: str) -> Stage:
    made = program(name)
    return made.stages[made.main]


def check_all() -> None:
    """Every structure of every function, as an answer of a smith that makes no mistake."""
    x = torch.randn(8, 24, generator=torch.Generator().manual_seed(1))
    for name, structure in STRUCTURES:
        made, scope = program(name), dict[str, Any]()
        read = taught(made.stages[made.main])
        if structure not in structures_of(read.stage):
            continue
        answer = kernel_source(read.stage, structure, Settings(block=16))
        file = Path(sys.argv[1]) / f"{name}_{structure}.py"
        file.write_text(program_source(read.launched(made), {made.main: read.restored(answer)}))
        exec(compile(file.read_text(), file, "exec"), scope)
        numbers = list(NUMBERS.values()) if name == "clamped" else []
        found, wanted = scope["run"](x, *numbers), FUNCTIONS[name](x, *numbers)
        found = found if isinstance(found, tuple) else (found,)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for one, other in zip(found, wanted, strict=True):
            assert torch.allclose(one.double(), other.double(), atol=1e-5), (name, structure)
        print(name, structure)


def test_answers_in_taught_forms_compute_the_function(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "from tests.smith.test_taught import *; check_all()", tmp_path],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert {line.split()[0] for line in ended.stdout.splitlines()} == {*FUNCTIONS}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_smith_reads_only_what_training_had(name: str) -> None:
    read = taught(main_of(name)).stage
    assert all(is_usual(address) for address in read.addresses), stage_text(read)
    assert not read.numbers
    assert len(read.stores) <= max(MOST_STORES, len({store.over for store in read.stores}))
    assert not {line.op for line in read.lines if line.kind == "f"} & {"mod", "floor_div"}
    assert name != "rounded" or "to_int" not in {line.op for line in read.lines}


def test_known_operations_are_read_as_they_were_taught() -> None:
    for name in set(catalogue_names()) - NEWER:
        made = catalogue_program(name)
        assert made is not None
        stage = made.stages[made.main]
        if len(stage.stores) <= MOST_STORES and not stage.numbers:
            assert taught(stage).stage == stage, name


def test_a_number_stands_after_what_a_mask_keeps() -> None:
    """Whole numbers may be compared the other way round; for floats a NaN would count."""

    def choices(function: Callable[[Tensor], Tensor]) -> list[tuple[str, ...]]:
        made = trace("f", function, [Argument("x", torch.randn(4, 8))])
        lines = taught(made.stages[0]).stage.lines
        return [line.arguments for line in lines if line.op == "where"]

    (by_place,) = choices(lambda x: x.masked_fill(torch.arange(x.shape[1]) > 3, -5.0))
    (by_value,) = choices(lambda x: x.masked_fill(x > 3, -5.0))
    assert by_place[2].startswith("k") and by_value[1].startswith("k")


def test_a_wrong_answer_stays_wrong() -> None:
    """kmint replaces the address that the smith read, and no other."""
    read = taught(main_of("mirrored"))
    answer = kernel_source(read.stage, "flat", Settings())
    name = next(iter(read.addresses))
    assert f"{name} + r" not in read.restored(answer.replace(f"{name} + i", f"{name} + i + 1"))


def test_a_draft_has_the_true_addresses() -> None:
    made = program("pool")
    stage = taught(made.stages[0]).stage
    answer = kernel_source(stage, "row", Settings())
    done = DraftDone(
        draft=0, text=answer, finish="stop", tokens=9, seconds=0.1, seed=1, temperature=0.7
    )
    assert "r // K0 * K1 + r" in DraftBook(made).add(done).source and "r // K0" not in answer


def test_a_single_row_of_several_sums_is_no_main_stage() -> None:
    """The smith writes the losses of the rows, and the template their mean."""
    x, y = torch.randn(4, 8), torch.tensor([1, -100, 7, 0])
    made = trace(
        "f",
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
        [Argument("x", x), Argument("y", y)],
    )
    longest = max(range(2), key=lambda number: len(made.stages[number].lines))
    assert longest == 1 and made.main == 0
