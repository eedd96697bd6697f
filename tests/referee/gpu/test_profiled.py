"""The names of the kernels that a baseline runs, as the profiler saw them, and the packages that
may change them.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError

import pytest
import torch

from referee import versions
from referee.timing.baselines import LONGEST_NAME, MOST_KERNELS, kernel_names, kernels_of


def test_kernels_are_named_once_and_other_events_left_out() -> None:
    assert kernel_names(
        ["softmax", "Memset (Device)", "triton_red_0", "softmax", "Memcpy DtoD"]
    ) == (
        "softmax",
        "triton_red_0",
    )
    long = kernel_names(f"{number}" + "k" * 999 for number in range(99))
    assert len(long) == MOST_KERNELS and {len(name) for name in long} == {LONGEST_NAME}


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu_there_are_none() -> None:
    assert kernels_of(torch.neg, [torch.ones(4)]) == ()


def test_packages_that_change_pytorch_are_named_with_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def version(package: str) -> str:
        if package == "quack-kernels":
            return "0.6.5"
        raise PackageNotFoundError(package)

    versions._version.cache_clear()
    monkeypatch.setattr(versions, "version", version)
    assert versions.rerouting() == {"quack-kernels": "0.6.5"}
    versions._version.cache_clear()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_eager_and_compiled_kernels_are_told_apart() -> None:
    x = torch.ones(64, 512, device="cuda")
    compiled = torch.compile(lambda x: torch.softmax(x, -1), dynamic=False)
    compiled(x)
    eager, fused = kernels_of(torch.relu, [x]), kernels_of(compiled, [x])
    assert any("elementwise" in name for name in eager), eager
    assert any(name.startswith("triton_") for name in fused), fused
