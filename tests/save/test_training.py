"""A small transformer trains with five saved kernels in place: forward and backward in one graph,
the losses of plain PyTorch.

On the CPU a saved file computes its reference; what is tested there is that torch.compile takes its
operators with gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from bench.five_kernels import KERNELS, Operations, operations
from bench.saved_training import TINY, Run, Transformer, batches, compare, model, plainly, train
from tests.save.conftest import save_quickly


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> tuple[Operations, Operations]:
    folder = tmp_path_factory.mktemp("five")
    for name in KERNELS.values():
        save_quickly(name, folder)
    return operations(folder)


def traced(made: Transformer) -> Callable[[Tensor, Tensor], Tensor]:
    whole: Callable[[Tensor, Tensor], Tensor] = torch.compile(
        made, fullgraph=True, backend="aot_eager"
    )
    return whole


def test_the_losses_are_those_of_the_plain_model(ops: tuple[Operations, Operations]) -> None:
    row = compare(ops, TINY, torch.float32, "cpu", steps=12, compiled=traced)
    assert row["noise"] > 0 and row["difference"] <= 4 * row["noise"], row
    assert row["runs"]["after"]["losses"][-1] < row["runs"]["after"]["losses"][0]


def test_a_wrong_gradient_is_seen_in_the_losses(ops: tuple[Operations, Operations]) -> None:
    plain, saved = ops

    def halved(gate: Tensor, up: Tensor) -> Tensor:
        right = saved.swiglu(gate, up)
        return right.detach() / 2 + right / 2

    row = compare(
        (plain, replace(saved, swiglu=halved)),
        TINY,
        torch.float32,
        "cpu",
        steps=12,
        compiled=plainly,
    )
    assert row["difference"] > 4 * row["noise"], row


def test_the_same_weights_and_data_every_time(ops: tuple[Operations, Operations]) -> None:
    data = batches(TINY, 3, "cpu")
    one, other = (train(model(TINY, ops[0], torch.float32, "cpu"), data, plainly) for _ in range(2))
    assert isinstance(one, Run) and one.losses == other.losses and one.step_us is None
