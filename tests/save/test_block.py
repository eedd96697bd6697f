"""A transformer block with three saved kernels in place of its PyTorch operations gives the same
answer under torch.compile.
"""

from __future__ import annotations

import pytest
import torch

from bench.saved_block import Operations, blocks, measure, operations
from referee.judge import Referee
from tests.save.conftest import save_gold


@pytest.fixture(scope="module")
def ops(
    referee: Referee, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Operations, Operations]:
    """Plain operations, and the three kernels, judged and saved."""
    made = tmp_path_factory.mktemp("block")
    for name in ("row_rmsnorm", "row_add_rmsnorm", "flat_swiglu"):
        save_gold(referee, name, made)
    return operations(made)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_on_the_cpu(ops: tuple[Operations, Operations], backend: str) -> None:
    plain, saved = blocks(ops, 64, 4, 96, torch.float32, "cpu")
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(saved, fullgraph=True, backend=backend)
        for batch, tokens in ((2, 7), (2, 5), (3, 5), (1, 16), (4, 1), (2, 33)):
            x = torch.randn(batch, tokens, 64)
            torch.testing.assert_close(compiled(x), plain(x))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_on_the_gpu(ops: tuple[Operations, Operations], dtype: torch.dtype) -> None:
    row = measure(ops, (512, 1024, 8, 2048), dtype)
    assert float(str(row["after_us"])) > 0
