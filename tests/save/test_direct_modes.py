"""Where PyTorch must see a call, a saved function calls its operator and launches nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from bench.saved_block import load
from bench.saved_calls import Nothing
from tests.save.conftest import save_quickly
from tests.save.direct import File, assert_same, outcome, save_for_cpu


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("modes")
    save_for_cpu(["online_softmax"], made)
    return made


@pytest.fixture
def softmax(folder: Path) -> File:
    return File(folder / "softmax.py", "softmax")


def test_a_compiled_call_takes_the_operator(softmax: File) -> None:
    x = torch.randn(3, 8)
    softmax.direct(x)
    torch._dynamo.reset()
    compiled: Callable[[Tensor], Tensor] = torch.compile(
        softmax.function, fullgraph=True, backend="aot_eager"
    )
    before = softmax.launches
    torch.testing.assert_close(compiled(x), torch.softmax(x, -1))
    assert softmax.launches == before
    softmax.direct(x)


def test_transforms_take_the_operator(softmax: File) -> None:
    """Also for a tensor that is no part of the transform: a launch would get wrapped outputs."""
    x, y = torch.randn(4, 3, 8), torch.randn(3, 8)
    softmax.direct(y)
    operator, before = softmax.module._op, softmax.launches
    for taken in (lambda one: one, lambda one: y):
        for transform in (torch.vmap, torch.func.grad):

            def of(
                function: Callable[[Tensor], Tensor],
                taken: Callable[[Tensor], Tensor] = taken,
                transform: Any = transform,
            ) -> object:
                whole = transform(lambda one: function(taken(one)).sum() + one.sum())
                return outcome(whole, x if transform is torch.vmap else x[0])

            assert_same(of(softmax.function), of(operator))
    assert softmax.launches == before


def test_forward_derivatives_take_the_operator(softmax: File) -> None:
    x = torch.randn(3, 8)
    softmax.direct(x)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))  # type: ignore[no-untyped-call]
        found, wanted = softmax.by_operator(dual), softmax.module._op(dual)
        unpack: Any = forward_ad.unpack_dual
        for one, other in zip(unpack(found), unpack(wanted), strict=True):
            assert_same(one, other)


class Tagged(Tensor):
    """A subclass that sees every function of PyTorch."""

    seen: list[str] = []

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        cls.seen.append(str(func))
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


class Dispatched(Tensor):
    """A subclass that has memory of its own, and refuses what PyTorch dispatches."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        raise NotImplementedError(str(func))


def test_subclasses_and_fake_tensors_take_the_operator(softmax: File) -> None:
    x = torch.randn(3, 8)
    softmax.direct(x)
    before = softmax.launches
    tagged = x.as_subclass(Tagged)
    assert type(softmax.function(tagged)) is Tagged
    dispatched = Tensor._make_subclass(Dispatched, x)
    with pytest.raises(NotImplementedError):
        softmax.function(dispatched)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
        assert type(softmax.function(fake)) is type(softmax.module._op(fake)) is type(fake)
    assert softmax.launches == before


class Names(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.found.append(str(func))
        return func(*args, **(kwargs or {}))


class FunctionNames(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.found.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("make", [Names, FunctionNames])
def test_a_mode_sees_the_operator(softmax: File, make: type[Names] | type[FunctionNames]) -> None:
    x = torch.randn(3, 8)
    softmax.direct(x)
    with make() as mode:
        softmax.function(x)
    assert any("kmint_" in name and "softmax" in name for name in mode.found), mode.found
    softmax.direct(x)


@pytest.mark.parametrize("pre_dispatch", [False, True])
def test_a_trace_holds_the_operator(softmax: File, pre_dispatch: bool) -> None:
    x, y = torch.randn(3, 8), torch.randn(3, 8)
    softmax.direct(x)
    graph = make_fx(lambda one: softmax.function(one), pre_dispatch=pre_dispatch)(x)
    assert "kmint_" in graph.code
    torch.testing.assert_close(graph(y), torch.softmax(y, -1))


@pytest.mark.filterwarnings("ignore")
def test_a_torchscript_trace_holds_the_operator(softmax: File) -> None:
    x, y = torch.randn(3, 8), torch.randn(3, 8)
    softmax.direct(x)
    traced = torch.jit.trace(lambda one: softmax.function(one), (x,))  # type: ignore[no-untyped-call]
    assert "kmint_" in str(traced.graph)
    torch.testing.assert_close(traced(y), torch.softmax(y, -1))


@pytest.mark.parametrize(
    "context",
    [
        nullcontext,
        partial(torch.autocast, "cpu", torch.bfloat16),
        # It acts from its making on.
        partial(torch.autograd.set_detect_anomaly, True),
    ],
    ids=["plain", "autocast", "anomaly"],
)
def test_other_contexts_change_nothing(
    softmax: File, context: Callable[[], AbstractContextManager[Any]]
) -> None:
    x = torch.randn(3, 8)
    wanted = softmax.module._op(x)
    with context():
        found = softmax.direct(x)
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted)


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
def test_deterministic_algorithms_change_nothing(softmax: File) -> None:
    x = torch.randn(3, 8)
    assert torch.equal(softmax.direct(x), softmax.direct(x))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_unusual_tensors_take_the_operator(softmax: File) -> None:
    """Their memory does not hold their values: a kernel would read others, or none."""
    x = torch.randn(3, 8)
    softmax.direct(x)
    for odd in (torch._neg_view(x), torch._efficientzerotensor((3, 8)), x[:0]):
        torch.testing.assert_close(softmax.by_operator(odd), torch.softmax(odd + 0, -1))
    for odd in (x.to_sparse(), torch.nested.nested_tensor([x, x])):
        assert isinstance(outcome(softmax.by_operator, odd), tuple)


def test_another_pytorch_gets_the_operator(softmax: File, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 8)
    softmax.direct(x)
    monkeypatch.setattr(softmax.module, "forward_ad", object())
    torch.testing.assert_close(softmax.by_operator(x), torch.softmax(x, -1))


def test_a_traced_operator_announces_its_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.compile then sees the kernel; a direct launch is that of the kernel alone."""
    module: Any = load(save_quickly("online_softmax", tmp_path).files[0])
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    for function in (module._op, module.softmax):
        with FakeTensorMode():
            traced: Any = dispatch_functionalize(lambda x, function=function: function(x))
            graph = make_fx(traced)(torch.empty(3, 8, device="cuda"))
        assert "triton_kernel_wrapper" in graph.code
    assert not module._thread.in_operator
    # wrap_triton takes kernels only.
    monkeypatch.setattr(module, "_kernel", Nothing())
    assert module._run(torch.randn(3, 8)).shape == (3, 8)
