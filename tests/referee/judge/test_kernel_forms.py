"""Right kernels in their usual forms pass, also where their rounding cancels or is multiplied."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from bench.functions.cases import CASES
from referee.ops.catalogue import catalogue
from referee.ops.task import load
from tests.referee.kernel_forms import rejected_cells
from tests.referee.own_reference import load_user, task

ROOT = Path(__file__).parents[3]

BODIES = {
    "tanh": "torch.tanh(x) * u",
    "softcap": "30.0 * torch.tanh(x / 30.0) * u",
    "elu": "F.elu(x) * u",
    "selu": "F.selu(x) * u",
    "celu": "F.celu(x, 0.5) * u",
    "expm1": "torch.expm1(x) * u",
    "log1p": "torch.sign(x) * torch.log1p(x.abs()) * u",
    "softplus": "F.softplus(x) * u",
    "mish": "F.mish(x) * u",
    "logsigmoid": "F.logsigmoid(x) * u",
    "gelu": "F.gelu(x, approximate='tanh') * u",
    "gelu_erf": "F.gelu(x) * u",
    "gelu_backward": "torch.ops.aten.gelu_backward(u, x, approximate='tanh')",
    "by_hand": "torch.where(x + u > 0, x + u, torch.exp(x + u) - 1.0) * u",
    "alibi": "torch.softmax(x - 4.0 * u[:, :1] * torch.arange(x.shape[-1]).to(x.dtype), -1)",
}


@pytest.mark.parametrize("name", BODIES)
def test_an_activation_that_is_multiplied_is_right(name: str, tmp_path: Path) -> None:
    judged = task(tmp_path, "x, u", BODIES[name], "torch.randn(32, 100), torch.randn(32, 100)")
    assert not [found for seed in range(3) for found in rejected_cells(judged, seed)]


@pytest.mark.parametrize("name", ["tanh", "elu", "softplus", "gelu_backward", "by_hand"])
def test_an_activation_of_low_precision_is_wrong(name: str, tmp_path: Path) -> None:
    judged = task(tmp_path, "x, u", BODIES[name], "torch.randn(32, 100), torch.randn(32, 100)")

    def coarse(x: Tensor, u: Tensor) -> Tensor:
        rounded = x.float().bfloat16().float()
        return judged.oracle(rounded, u.float())  # type: ignore[no-any-return]

    assert len(rejected_cells(judged, 0, coarse)) > 2


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, listed in CASES.items() for name in listed]
)
def test_a_tried_function_is_right(module: str, name: str) -> None:
    file = ROOT / "bench" / "functions" / f"{module}.py"
    judged = load_user(file, name, "cpu", *CASES[module][name].split())
    assert not rejected_cells(judged, 0)


@pytest.mark.sweep
@pytest.mark.parametrize("name", [op.name for op in catalogue()])
def test_an_operation_is_right(name: str) -> None:
    assert not rejected_cells(load(name, "cpu"), 0)


def test_the_functions_own_infinity_is_right(tmp_path: Path) -> None:
    """exp(100) is infinite in fp32, where the kernel has what PyTorch has: NaN for inf / inf."""
    body = "torch.exp(x + 100.0) / (torch.exp(x + 100.0) + 1.0)"
    judged = task(tmp_path, "x", body, "torch.randn(8, 100)")
    assert not rejected_cells(judged, 0)


def test_a_nan_of_a_kernel_alone_is_wrong(tmp_path: Path) -> None:
    judged = task(tmp_path, "x", "torch.softmax(x + 100.0, -1)", "torch.randn(8, 100)")

    def naive(x: Tensor) -> Tensor:
        return torch.exp(x + 100.0) / torch.exp(x + 100.0).sum(-1, keepdim=True)

    assert rejected_cells(judged, 0, naive)
