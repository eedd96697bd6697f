"""The quick form of the checks: it passes usual inputs, and nothing that the checks refuse."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from bench.saved_block import load
from tests.save.conftest import BY_KIND, op_name, save_quickly
from tests.save.test_host_code import GOOD
from tests.save.test_saved_project import flat_arguments
from tests.save.test_saving import saved


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved kernel of every signature kind."""
    made = tmp_path_factory.mktemp("quick")
    for name in BY_KIND.values():
        save_quickly(name, made)
    return made


def changed(tensor: Tensor) -> Iterator[object]:
    """Inputs near a right one, most of them wrong."""
    yield from (None, tensor.tolist(), tensor.to(torch.float64), tensor.to(torch.int32))
    yield from (tensor.t(), tensor[..., :-1], tensor[..., ::2], tensor[:0], tensor[..., :0])
    yield from (tensor[0], tensor.flatten()[0], tensor[None], tensor[..., None], tensor.to("meta"))
    yield from (
        tensor[:1].expand_as(tensor),
        torch.cat([tensor, tensor], -1)[..., : tensor.shape[-1]],
    )
    yield from (torch.cat([tensor] * 300, -1), torch.cat([tensor, tensor]), tensor.clone())


def refusal(module: ModuleType, given: list[object]) -> str:
    """The error of the checks, "" for inputs that they let through."""
    try:
        module._check(*given)
        module._check_layout(*given)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", BY_KIND.values())
def test_it_passes_nothing_that_the_checks_refuse(folder: Path, name: str) -> None:
    module, usual = load(folder / f"{op_name(name)}.py"), flat_arguments(op_name(name))
    assert module._usual(*usual) and not refusal(module, list(usual))
    passed = refused = 0
    for place, tensor in enumerate(usual):
        for other in changed(tensor):
            given: list[object] = [*usual[:place], other, *usual[place + 1 :]]
            error = refusal(module, given)
            if module._usual(*given):
                assert not error, (place, error)
                passed += 1
            refused += bool(error)
    assert passed and refused > 8 * len(usual)


def test_the_receipt_has_the_cost_of_a_small_call(folder: Path) -> None:
    receipt = json.loads((folder / "swiglu.receipt.json").read_text(encoding="utf-8"))
    cost = receipt["host"]
    assert cost["inputs"] == ["torch.randn(64, 64)", "torch.randn(64, 64)"]
    assert all(cost[name] > 0 for name in ("checks_us", "one_by_one_us", "reference_us"))


def test_a_file_that_is_imported_twice_calls_the_living_operator(
    folder: Path, tmp_path: Path
) -> None:
    """torch frees the operator of the first import, which may crash at a call."""
    # An import of an earlier test takes its operator along when it is freed.
    gc.collect()
    first = load(folder / "softmax.py")
    again = shutil.copy(folder / "softmax.py", tmp_path / "softmax_again.py")
    second = load(Path(again))
    x = torch.randn(5, 64)
    for module in (first, second):

        class Model(torch.nn.Module):
            function = staticmethod(module.softmax)

            def forward(self, x: Tensor) -> Tensor:
                found: Tensor = self.function(x)
                return found

        graph = torch.export.export(Model(), (x,)).graph
        (target,) = (node.target for node in graph.nodes if "softmax" in str(node.target))
        assert target is second._op._opoverload


@pytest.mark.parametrize("name", ["_vmap", "_usual", "_check_layout", "_keep"])
def test_a_kernel_may_have_a_name_of_the_file(tmp_path: Path, name: str) -> None:
    assert "_kernel" in GOOD
    text = saved(tmp_path, GOOD.replace("_kernel", name)).files[0].read_text(encoding="utf-8")
    assert text.count(f"def {name}(") == 1 and f"def {name}_(" in text
