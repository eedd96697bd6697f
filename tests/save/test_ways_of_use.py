"""Views that models have, and the ways PyTorch calls an operator: each works, or says in one line
that it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor

from bench.saved_block import load
from tests.save.conftest import save_quickly

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
Loads = Callable[[str], ModuleType]


@pytest.fixture(scope="module")
def loads(tmp_path_factory: pytest.TempPathFactory) -> Loads:
    """A saved file as a module, by the gold kernel's name."""
    made: dict[str, ModuleType] = {}

    def loaded(name: str) -> ModuleType:
        if name not in made:
            made[name] = load(save_quickly(name, tmp_path_factory.mktemp(name)).files[0])
        return made[name]

    return loaded


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 64), (2, 1, 64), (1, 4, 64)])
def test_halves_are_taken_by_their_stride(
    loads: Loads, device: str, shape: tuple[int, ...]
) -> None:
    module, bias = loads("strided_bias_gelu"), torch.randn(32, device=device)
    torch._dynamo.reset()
    compiled: Callable[[Tensor, Tensor], Tensor] = torch.compile(
        module.bias_gelu, fullgraph=True, backend="aot_eager"
    )
    halves = torch.randn(shape, device=device).chunk(2, -1)
    for half in halves:
        wanted = module.reference(half, bias)
        torch.testing.assert_close(module.bias_gelu(half, bias), wanted)
        torch.testing.assert_close(compiled(half, bias), wanted)
        assert half.reshape(-1, 32).data_ptr() == half.data_ptr(), (
            "it is copied on the way to the kernel"
        )


@pytest.mark.parametrize("device", DEVICES)
def test_rows_that_are_sliced(loads: Loads, device: str) -> None:
    module, bias = loads("strided_bias_gelu"), torch.randn(32, device=device)
    x = torch.randn(4, 6, 32, device=device)
    for view in (x[:, -1:], x[1:3], x[:, -1], x[::2, :1], x.flatten(0, 1)[::3], x[:0, 1:3]):
        torch.testing.assert_close(module.bias_gelu(view, bias), module.reference(view, bias))
    refused = (
        x[:, 1:3],
        x[..., ::2].repeat(1, 1, 2)[..., ::2].expand(4, 6, 16),
        x.transpose(0, 1),
        x[:1].expand(4, -1, -1),
    )
    for view in (*refused, x[:, :1].expand(-1, 6, -1), x[0, 0].expand(6, 32)):
        part = bias[: view.shape[-1]]
        with pytest.raises(ValueError, match="rows at equal distances; pass copy=True"):
            module.bias_gelu(view, part)
        torch.testing.assert_close(
            module.bias_gelu(view, part, copy=True), module.reference(view, part)
        )


def test_gaps_that_differ_need_a_copy(loads: Loads) -> None:
    module = loads("tiled_reglu")
    gate = torch.randn(5, 64)[:, :32]
    with pytest.raises(ValueError, match="up must have the row gap of gate; pass copy=True"):
        module.reglu(gate, gate.contiguous())
    torch.testing.assert_close(
        module.reglu(gate, gate.contiguous(), copy=True), module.reference(gate, gate)
    )


def test_a_span_that_was_not_judged_is_refused(loads: Loads) -> None:
    """A kernel that counts elements in int32 would come to another place; the storage is not needed
    to see it.
    """
    module = loads("tiled_reglu")
    far = torch.empty(2**31 + 64, dtype=torch.float16, device="meta").as_strided(
        (3, 32), (2**30, 1)
    )
    with pytest.raises(ValueError, match="span at most 2147483647"):
        module._row_gap("x", far)


@pytest.mark.parametrize("device", DEVICES)
def test_another_dimension_than_the_last(loads: Loads, device: str) -> None:
    module = loads("online_softmax")
    x = torch.randn(3, 5, 7, device=device)
    for dim in (-1, 2):
        torch.testing.assert_close(module.softmax(x, dim), torch.softmax(x, dim))
    for dim in (0, 1, -2):
        with pytest.raises(ValueError, match="dim must be the last dimension"):
            module.softmax(x, dim)
        torch.testing.assert_close(module.softmax(x, dim=dim, copy=True), torch.softmax(x, dim))
    with pytest.raises(IndexError, match="out of range"):
        module.softmax(x, 3, copy=True)


@pytest.mark.parametrize("device", DEVICES)
def test_export_keeps_the_operator(loads: Loads, device: str) -> None:
    module = loads("row_rmsnorm")

    class Norm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(64, device=device))

        def forward(self, x: Tensor) -> Tensor:
            normed: Tensor = module.rmsnorm(x, self.weight)
            return normed

    x = torch.randn(3, 64, device=device)
    exported = torch.export.export(
        Norm(), (x,), dynamic_shapes=({0: torch.export.Dim("rows", min=2, max=512)},)
    )
    assert any(
        "rmsnorm" in str(node.target) for node in exported.graph.nodes if node.op == "call_function"
    )
    for rows in (3, 8):
        x = torch.randn(rows, 64, device=device)
        torch.testing.assert_close(
            exported.module()(x), module.reference(x, torch.ones(64, device=device))
        )


@pytest.mark.parametrize("device", DEVICES)
def test_vmap_calls_it_for_each_sample(loads: Loads, device: str) -> None:
    module = loads("row_rmsnorm")
    x, w = torch.randn(4, 3, 64, device=device), torch.randn(4, 64, device=device)
    wanted = torch.stack([module.reference(one, weight) for one, weight in zip(x, w, strict=True)])
    for operator in (module.rmsnorm, module._op):
        torch.testing.assert_close(torch.vmap(operator)(x, w), wanted)
        torch.testing.assert_close(
            torch.vmap(operator, (1, None), 1)(x, w[0]), module.reference(x, w[0])
        )


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_gradients(loads: Loads, device: str) -> None:
    """Of the operator: on the CPU the function itself leaves it out."""
    module = loads("row_rmsnorm")

    def penalty(function: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor]:
        torch.manual_seed(2)
        x, w = (torch.randn(size, device=device).requires_grad_() for size in ((3, 64), (64,)))
        given = torch.autograd.grad(function(x, w).square().sum(), [x, w], create_graph=True)
        sum(one.square().sum() for one in (x, *given)).backward()  # type: ignore[union-attr]
        return [one.grad for one in (x, w) if one.grad is not None]

    # Sums of squares in another order: more than the usual steps of float32 on a GPU.
    torch.testing.assert_close(penalty(module._op), penalty(module.reference), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_casts_nothing_and_the_error_says_what_to_pass(loads: Loads, device: str) -> None:
    module = loads("row_rmsnorm")
    x, w = torch.randn(3, 64, device=device).bfloat16(), torch.randn(64, device=device)
    with torch.autocast(device, torch.bfloat16):
        with pytest.raises(TypeError, match=r"^w must be torch.bfloat16, not torch.float32$"):
            module.rmsnorm(x, w)
        found = module.rmsnorm(x, w.bfloat16())
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, module.reference(x, w.bfloat16()))


@pytest.mark.gpu
def test_a_cuda_graph_replays_it(loads: Loads) -> None:
    module = loads("row_rmsnorm")
    x, w = torch.randn(37, 512, device="cuda"), torch.randn(512, device="cuda")
    module.rmsnorm(x, w)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = module.rmsnorm(x, w)
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.testing.assert_close(found, module.reference(x, w))
