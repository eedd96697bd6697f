"""Cached functions of a file: what they may be given, what they may do, and when they may be called."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch

from referee.tracing.caches import Caches
from referee.tracing.training import Training
from referee.tracing.violation import Violation, Violations
from tests.referee.trace.test_attribute_guard import trace

CACHED = "import functools\nimport numpy\nfrom dataclasses import dataclass, field\n\n@functools.lru_cache(maxsize=None)\n"
BOX = "@dataclass(unsafe_hash=True)\nclass Box:\n    n: int\n    rows: list = field(default_factory=list, compare=False)\n"
REFUSED = {
    "given a tensor": (f"{CACHED}def f(x):\n    return x.shape[0]\n", "real = f(x) == 0", "tensor"),
    "given one in a tuple": (f"{CACHED}def f(given):\n    return given[0].shape[0]\n", "real = f((x, 1)) == 0", "tensor"),
    "given one in an object": (
        f"{CACHED}def f(box):\n    return box.n\n{BOX}",
        "box = Box(1)\n    box.rows.append(x)\n    real = f(box) == 0",
        "tensor",
    ),
    "given one by name": (f"{CACHED}def f(of):\n    return of.shape[0]\n", "real = f(of=x) == 0", "tensor"),
    "given an iterator": (f"{CACHED}def f(given):\n    return 1\n", "real = f(iter((1, 2))) == 0", "iterator"),
    "returns an iterator": (f"{CACHED}def f():\n    return iter((1, 2))\n", "real = next(f()) == 1", "iterator"),
    # Also where the launch is the same in every call that is traced.
    "fills its argument": (f"{CACHED}def f(box):\n    box.rows.append(1)\n    return 0\n{BOX}", "real = f(Box(1)) == 1", "an argument"),
    "returns an array that changes": (
        f"{CACHED}def f():\n    return numpy.floor([0.0])\n",
        "a = f()\n    a[0] = a[0] + 1\n    real = a[0] > 2000",
        "changed",
    ),
    "asks for gradients": (f"{CACHED}def f(n):\n    return torch.is_grad_enabled()\n", "real = f(1) and False", "asks torch"),
    "asks for the stream": (
        f"{CACHED}def f(n):\n    return torch.cuda.current_stream().cuda_stream\n",
        "real = f(1) == torch.cuda.current_stream().cuda_stream",
        "asks torch",
    ),
    "called at import": (
        f"LIST = [1]\n{CACHED}def f():\n    return LIST[0]\n\nFIRST = f()\nLIST[0] = 2\n",
        "real = f() == 1",
        "while the file is being imported",
    ),
}
PASSES = {
    "numbers, dtypes and devices": (
        f"{CACHED}def f(*given):\n    return len(given)\n",
        "real = f(x.shape, x.dtype, x.device, 'a', 1) == 0",
    ),
    "a frozen object": (f"{CACHED}def f(box):\n    return box.n\n{BOX}", "real = f(Box(1)) == 0"),
    "a pair is returned": (f"{CACHED}def f(n):\n    return n, 2\n", "real = f(x.shape[0])[1] == 1"),
    "a function": (f"{CACHED}def f(function):\n    return 1\n", "real = f(run) == 0"),
    "nothing is cached": (f"{CACHED}def f():\n    return 1\n\nFIRST = f()\n".replace("None", "0"), "real = f() == 0"),
    "another after a try at import": (f"{CACHED}def f():\n    return 1\n\nFIRST = f()\nf.cache_clear()\n", "real = f() == 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_cached_function_does_once_only_is_refused(name: str, tmp_path: Path) -> None:
    before, line, says = REFUSED[name]
    rejection = trace(before, line, tmp_path)[1].get("rejection")
    assert isinstance(rejection, dict) and (rejection["guard"], says in rejection["reason"]) == ("state", True), rejection


@pytest.mark.parametrize("name", PASSES)
def test_numbers_may_be_cached(name: str, tmp_path: Path) -> None:
    assert "plans" in trace(*PASSES[name], tmp_path)[1]


def test_a_tensor_is_found_wherever_it_is_given() -> None:
    module, violations = ModuleType("kernel_under_test"), Violations()
    caches = Caches(module, violations, Training(violations))
    with caches.noted():
        exec("import functools\n@functools.cache\ndef f(of):\n    return 1\n", vars(module))
    with pytest.raises(Violation, match="shapes, dtypes and numbers"):
        vars(module)["f"]((torch.zeros(1),))
    assert violations.first is not None
