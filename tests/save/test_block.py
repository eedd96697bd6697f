"""A transformer block with three saved kernels in place of its PyTorch operations gives the same answer under torch.compile."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bench.saved_block import blocks, measure
from referee.judge import Referee
from tests.save.conftest import save_gold


@pytest.fixture(scope="module")
def folder(referee: Referee, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three kernels, judged and saved."""
    made = tmp_path_factory.mktemp("block")
    for name in ("row_rmsnorm", "row_add_rmsnorm", "flat_swiglu"):
        save_gold(referee, name, made)
    return made


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_on_the_cpu(folder: Path, backend: str) -> None:
    plain, saved = blocks(folder, 64, 4, 96, torch.float32, "cpu")
    x = torch.randn(2, 7, 64)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(saved, fullgraph=True, backend=backend)
        torch.testing.assert_close(compiled(x), plain(x))
        torch.testing.assert_close(compiled(x[:, :5].contiguous()), plain(x[:, :5]))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_on_the_gpu(folder: Path, dtype: torch.dtype) -> None:
    row = measure(folder, 512, 1024, 8, 2048, dtype)
    assert float(str(row["after_us"])) > 0
