"""Direct launches on a GPU: the bits of the operator, CUDA graphs, streams, devices, compiled calls."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from bench.saved_block import load
from tests.save.conftest import save_quickly


def on_gpu(tmp_path: Path, name: str = "online_softmax") -> ModuleType:
    return load(save_quickly(name, tmp_path).files[0])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_bits_are_those_of_the_operator(tmp_path: Path, dtype: torch.dtype) -> None:
    module: Any = on_gpu(tmp_path)
    for shape in ((64, 1024), (1, 4096), (2, 3, 257)):
        x = torch.randn(shape, device="cuda", dtype=dtype)
        wanted = module._op(x.reshape(-1, shape[-1])).reshape(shape)
        for _ in range(2):
            assert torch.equal(module.softmax(x), wanted)
    assert len(module._KEPT) == 3


@pytest.mark.gpu
def test_a_cuda_graph_holds_direct_launches(tmp_path: Path) -> None:
    module: Any = on_gpu(tmp_path)
    x = torch.randn(37, 512, device="cuda")
    for kept in (True, False):
        module.softmax(x)
        if not kept:
            module._KEPT.clear()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = module.softmax(x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.testing.assert_close(found, torch.softmax(x, -1))


@pytest.mark.gpu
def test_a_launch_goes_to_the_current_stream(tmp_path: Path) -> None:
    """On another stream it would read the values before they are written."""
    module: Any = on_gpu(tmp_path)
    x, values = torch.zeros(64, 1024, device="cuda"), torch.randn(64, 1024, device="cuda")
    module.softmax(x)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # type: ignore[no-untyped-call]
        x.copy_(values)
        found = module.softmax(x)
    stream.synchronize()
    torch.testing.assert_close(found, torch.softmax(values, -1))


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="it needs two GPUs")
def test_a_launch_goes_to_the_device_of_the_tensors(tmp_path: Path) -> None:
    module: Any = on_gpu(tmp_path)
    for device in ("cuda:0", "cuda:1", "cuda:0", "cuda:1"):
        x = torch.randn(64, 1024, device=device)
        found = module.softmax(x)
        assert found.device == x.device and torch.cuda.current_device() == 0
        torch.testing.assert_close(found, torch.softmax(x, -1))
    assert len(module._KEPT) == 2
    rms: Any = on_gpu(tmp_path, "row_rmsnorm")
    with pytest.raises(ValueError, match="w must be on cuda:0, not on cuda:1"):
        rms.rmsnorm(torch.randn(3, 64, device="cuda:0"), torch.ones(64, device="cuda:1"))


@pytest.mark.gpu
def test_compiled_and_eager_calls_take_turns(tmp_path: Path) -> None:
    module: Any = on_gpu(tmp_path)
    torch._dynamo.reset()
    compiled = torch.compile(module.softmax, fullgraph=True)
    for rows in (3, 5, 3):
        x = torch.randn(rows, 512, device="cuda")
        torch.testing.assert_close(compiled(x), module.softmax(x))  # type: ignore[no-untyped-call]
    assert not module._thread.in_operator
