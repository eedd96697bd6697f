"""What kinds of tensors the inputs are: tried in as many ways as a file could tell them apart, and in no more."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch

from referee.ops.spec import TensorSpec
from referee.tracing import given, tracer
from referee.tracing.ways import Way
from tests.referee.trace.bad import ALLOCATE, LAUNCH, body
from tests.referee.trace.good import rows, tensor
from tests.referee.trace.test_asked import either, refused, told

FOUR = rows("x", shape=(3, 100), extra=tuple(tensor(name, (3, 100)) for name in ("r", "w", "b")))
NAMES = "x, r, w, b"

MODULE = """
class Fused(torch.nn.Module):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x, r, w, b):
        y = torch.empty_like(x)
        copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
        return y

def run(x, r, w, b):
    return Fused()(x, r, w, b)
"""
PLAIN = MODULE.replace("(torch.nn.Module)", "").replace("        super().__init__()\n", "").replace("forward", "__call__")
HOLDS_TWO = MODULE.replace("eps=1e-5", "w, b").replace("self.eps = eps", "self.w, self.b = w, b").replace("Fused()", "Fused(w, b)")

HOLDER = """
class Holder(torch.nn.Module):
    def __init__(self, *given):
        super().__init__()
        for number, one in enumerate(given):
            if number == 0:
                self.a = one
            elif number == 1:
                self.b = one
            elif number == 2:
                self.c = one
            else:
                self.d = one

"""
IN_FORWARD = """
class Holder(torch.nn.Module):
    def forward(self, one):
        self.held = one
        return len(list(self.parameters()))

"""
# torch asks for the sake of hooks, and hands on another tensor then.
HOOKS = """
class Holder(torch.nn.Module):
    _backward_hooks, _backward_pre_hooks, _forward_hooks, _forward_pre_hooks, _is_full_backward_hook = {}, {0: len}, {}, {}, True

    def __init__(self, *given):
        self.given = given

    def forward(self, one):
        self.same = one is self.given[0]
        return one

"""


def ways_of(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Way]:
    """In which ways `run` was called for one cell of a file that passes."""
    found: list[Way] = []
    call = tracer._Tracing._call

    def noted(self: Any, inputs: tuple[TensorSpec, ...], outputs: int, way: Way, **options: Any) -> Any:
        found.append(way)
        return call(self, inputs, outputs, way, **options)

    with monkeypatch.context() as patch:
        patch.setattr(tracer._Tracing, "_call", noted)
        answer = told(host, tmp_path, FOUR)
    assert "plans" in answer, answer
    return found


def test_a_module_is_called_as_often_as_another_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [ways_of(host, tmp_path, monkeypatch) for host in (PLAIN, MODULE)]
    assert found[0] == found[1] and len(found[0]) == 2


def test_only_what_a_module_holds_is_tried_as_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {way.kinds for way in ways_of(HOLDS_TWO, tmp_path, monkeypatch)}
    assert len(found) == 4**2 + 1
    assert sum(kinds[:2] != (given.PLAIN, given.PLAIN) for kinds in found) == 1


@pytest.mark.parametrize(
    ("before", "condition"),
    [
        (HOLDER, "len(list(Holder(x, r, w, b).parameters())) == 2"),
        (HOLDER, "len(list(Holder(w, b).parameters())) == 1"),
        (HOLDER, "len(list(Holder(x, w).parameters())) == 1 and len(list(Holder(r, b).parameters())) == 2"),
        (HOLDER, "len(list(Holder(b).parameters())) == 1 and not torch.is_grad_enabled()"),
        (HOLDER, "len(list(Holder(w).parameters())) == 1 and not w.requires_grad"),
        (IN_FORWARD, "Holder()(w) == 1 and Holder()(x) == 0"),
        (HOOKS, "(m := Holder(w))(w) is not None and not m.same and (n := Holder(b))(b) is not None and n.same"),
        ("", "b.requires_grad and not x.requires_grad"),
        ("", "sum(one.requires_grad for one in (x, r, w, b)) == 2"),
        ("", "type(w) != type(x)"),
        ("", "not isinstance(b, type(r))"),
    ],
)
def test_no_plan_is_for_some_kinds_only(before: str, condition: str, tmp_path: Path) -> None:
    guard, reason = refused(before + either(condition, NAMES), tmp_path, FOUR)
    assert (guard, "second call" in reason) == ("state", True), reason


@pytest.mark.parametrize(
    ("text", "tells"),
    [
        ("tl.extra.cuda.libdevice.tanh(x)", False),
        ("y = torch.float", False),
        ("x.extra.cuda", True),
        ("f(x).float", True),
        ("class tl:\n    pass\ntl.held.cuda", True),
        ("def f(tl):\n    return tl.held.cuda", True),
    ],
)
def test_a_module_s_own_words_do_not_tell_two_tensors_apart(text: str, tells: bool) -> None:
    assert given.tells_same(ast.parse(text)) is tells


@pytest.mark.parametrize(
    ("text", "tells"),
    [
        ("import torch\nisinstance(x, torch.Tensor)", False),
        ("isinstance(n, (int, float))", False),
        ("isinstance(x, type(w))", True),
        ("isinstance(x, int) or isinstance(x, Other)", True),
        ("from torch.nn import Parameter as int\nisinstance(x, int)", True),
        ("import torch.nn as torch\nisinstance(x, torch.Tensor)", True),
        ("def f(x, int):\n    return isinstance(x, int)", True),
        ("for float in kinds:\n    isinstance(x, (int, float))", True),
        ("isinstance(x, torch.nn.Parameter)", True),
        ("asks = isinstance\nisinstance(x, int)", True),
        ("isinstance(x, *(int,))", True),
        ("issubclass(kind, int)", True),
    ],
)
def test_that_something_is_a_tensor_tells_no_kind(text: str, tells: bool) -> None:
    assert given.tells_kinds(ast.parse(text)) is tells


def test_modules_are_as_before_when_a_trace_is_over(tmp_path: Path) -> None:
    before = vars(torch.nn.Module).copy()
    assert "plans" in told(HOLDS_TWO, tmp_path, FOUR)
    assert vars(torch.nn.Module) == before


def test_a_made_tensor_may_be_held(tmp_path: Path) -> None:
    run = body(ALLOCATE, "held = Holder(y)", LAUNCH, "return held.a").replace("run(x)", f"run({NAMES})")
    assert "plans" in told(HOLDER + run, tmp_path, FOUR)
