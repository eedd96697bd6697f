"""What a file calls its own is asked of its own objects only, and what it would evaluate as text is refused: seen while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from referee.reading.screen import screen
from referee.target import Target
from referee.tracing.tracer import trace_source
from tests.referee.trace.good import rows

CELL = rows("x", shape=(3, 100))
KERNEL = """
@triton.jit
def _kernel(x, out, n, BY, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(out + cols, tl.load(x + cols, mask=cols < n) * BY, mask=cols < n)

"""
LAUNCH = """
    out = torch.empty_like(x)
    _kernel[(1,)](x, out, 100, 2 if real else 1, BLOCK=128)
    return out
"""
IN_A_METHOD = LAUNCH.replace("\n    ", "\n        ")
FIELD = "from typing import NamedTuple\nclass P(NamedTuple):\n    dtype: object\n"

FOREIGN = {
    "a tensor": ("class L:\n    grad_fn = 1\n", "real = hasattr(x, 'grad_fn')"),
    "a tensor's private one": (
        "class L:\n    def __init__(self):\n        self._base = 1\n    def of(self):\n        return self._base\n",
        "real = L.of(x)",
    ),
    "a function": ("class L:\n    closure_of = 1\n", "real = getattr(max, 'closure_of', 0)"),
    "a kernel": ("class L:\n    is_gluon = 1\n", "real = _kernel.is_gluon()"),
    "what a module has from torch": (
        "class M(torch.nn.Module):\n    def of(self):\n        return self._forward_hooks\n",
        "real = M().of()",
    ),
    "what torch does for it": (
        "class M(torch.nn.Module):\n    def of(self):\n        return self.register_forward_hook(max)\n",
        "real = M().of()",
    ),
    "a version's": (FIELD, "real = triton.runtime.driver.active.get_current_target()._asdict()"),
    "a tensor's as a named tuple's": (FIELD, "real = hasattr(x, '_replace')"),
    "an enumeration's": ("import enum\nclass E(enum.Enum):\n    ROW = 1\n", "real = E._missing_(1)"),
    "a lambda's": ("class L:\n    grad_fn = 1\n", "real = (lambda value: value.grad_fn)(x)"),
    "in a decorator's function": ("class L:\n    grad_fn = 1\n\ndef of(value):\n    return value.grad_fn\n", "real = of(x)"),
}
OWN = {
    "a named tuple's": (FIELD, "real = P(2)._replace(dtype=3)._asdict()['dtype'] == 2"),
    "a plain named tuple's": (
        "import collections\nPair = collections.namedtuple('Pair', 'first second')\n", "real = Pair(1, 2)._replace(second=1).second == 2",
    ),
    "private": ("class L:\n    def __init__(self):\n        self._c = 2\n    def of(self):\n        return self._c\n", "real = L().of()"),
    "inherited": (
        "class A:\n    def first(self):\n        return 1\nclass B(A):\n    def first(self):\n        return super().first()\n",
        "real = B().first() == 2",
    ),
    "set and deleted": (
        "class L:\n    def __init__(self, n):\n        self.title = self.step = n\n        self.start: int = n\n        self.count = 0\n"
        "    def add(self):\n        self.count += self.start\n        del self.step\n        return self.count\n",
        "real = L(2).add() == 1",
    ),
    "of a tensor's name": ("class L:\n    def __init__(self, n):\n        self.data = n\n", "real = L(x.shape).data == 1"),
    "asked whether it has one": ("class L:\n    start = 1\n", "real = hasattr(L(), 'stop') or getattr(1, 'start', None)"),
    "named tuple": ("from collections import namedtuple\nP = namedtuple('P', 'warps blocks')\n", "real = P(1, 2).blocks == 1"),
    "data class": ("from dataclasses import dataclass\n@dataclass(frozen=True)\nclass D:\n    blocks: int = 3\n", "real = D().blocks == 1"),
    "enumeration": ("import enum\nclass E(enum.Enum):\n    ROW = 1\n", "real = E.ROW.value == 2"),
    "static": ("class L:\n    blocks = 1\n    @staticmethod\n    def twice(n):\n        return 2 * n\n", "real = L.twice(L.blocks) == 1"),
    "module": (
        "class M(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self._by = 2\n"
        f"    def forward(self, x):\n        real = self._by == 1{IN_A_METHOD}",
        "return M()(x)",
    ),
    "autograd": (
        "class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        "        ctx.by = 2\n        ctx.num_warps = ctx.name = 4\n"
        f"        real = ctx.by == 1{IN_A_METHOD}",
        "return F.apply(x)",
    ),
}  # fmt: skip


def trace(before: str, line: str, tmp_path: Path) -> tuple[str, dict[str, object]]:
    source = f"{before}{KERNEL}\ndef run(x):\n    {line}{LAUNCH}"
    return source, trace_source(source, str(tmp_path / "candidate.py"), Target(), [(CELL.inputs, 1)])


@pytest.mark.parametrize("name", FOREIGN)
def test_names_of_its_own_are_not_asked_of_others(name: str, tmp_path: Path) -> None:
    _, told = trace(*FOREIGN[name], tmp_path)
    rejection = told.get("rejection")
    assert isinstance(rejection, dict) and (rejection["guard"], "asked of" in rejection["reason"]) == ("state", True), told


PUT = "class L:\n    def put(self, value):\n        self.{} = value\n"
SET = {
    "a tensor": (PUT.format("title"), "L.put(x, 1)"),
    "a tensor's data": (PUT.format("data"), "L.put(x, torch.empty_like(x))"),
    "a name of the file's": (PUT.format("mark"), "L.put(x, 1)"),
    "a class": (PUT.format("clone"), "L.put(torch.Tensor, len)"),
    "a class of its own": (PUT.format("title"), "L.put(L, 1)"),
    "a function": (PUT.format("title"), "L.put(triton.cdiv, 1)"),
    "a logger": (f"import logging\n{PUT.format('title')}", "L.put(logging.getLogger('rows'), 1)"),
    "what is called a context": (PUT.format("title").replace("self", "ctx"), "L.put(x, 1)"),
    "while it is imported": (f"{PUT.format('clone')}DONE = L.put(torch.Tensor, len)\n", ""),
    "added to": ("class L:\n    def put(self):\n        self.itemsize += 1\n", "L.put(x)"),
    "deleted": ("class L:\n    def drop(self):\n        del self.clone\n", "L.drop(torch.Tensor)"),
    "in a loop": ("class L:\n    def put(self):\n        for self.title in (1, 2):\n            pass\n", "L.put(x)"),
    "in a nested function": (
        "class L:\n    def put(self):\n        def inner():\n            self.title = 1\n        inner()\n",
        "L.put(x)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SET)
def test_a_method_changes_objects_of_the_file_only(name: str, tmp_path: Path) -> None:
    before, line = SET[name]
    source, told = trace(before, f"{line}\n    real = 0", tmp_path)
    rejection = told.get("rejection")
    assert isinstance(rejection, dict) and (rejection["guard"], "is set or deleted" in rejection["reason"]) == ("state", True), told
    assert screen(source)[1] is None


@pytest.mark.parametrize("asked", ["hasattr(x, 'start')", "getattr(x, 'title', 0)", "x.start", "hasattr(x.view(-1), 'value')"])
def test_a_tensor_is_not_asked_for_what_tensors_do_not_have(asked: str, tmp_path: Path) -> None:
    source, told = trace("", f"real = {asked}", tmp_path)
    rejection = told.get("rejection")
    assert isinstance(rejection, dict) and (rejection["guard"], "asked of a tensor" in rejection["reason"]) == ("state", True), told
    assert screen(source)[1] is None


@pytest.mark.parametrize("name", OWN)
def test_they_are_asked_of_its_own_objects(name: str, tmp_path: Path) -> None:
    source, told = trace(*OWN[name], tmp_path)
    assert "plans" in told, told
    assert screen(source)[1] is None


@pytest.mark.parametrize("call", ["eval('2')", "exec('pass')", "compile('2', '', 'eval')"])
def test_text_is_not_evaluated(call: str, tmp_path: Path) -> None:
    _, told = trace("", f"real = {call}", tmp_path)
    rejection = told.get("rejection")
    assert isinstance(rejection, dict) and rejection["guard"] == "state" and "write it out" in rejection["reason"]


@pytest.mark.parametrize(
    "use",
    [
        "hasattr(made, 'run')",
        "made == 1",
        "made in {made}",
        "made in [_kernel[(1,)](x, torch.empty_like(x), 100, 1, BLOCK=128)]",
        "made[(1,)]",
        "type(made).run",
        "made.name",
    ],
)
def test_what_a_launch_returns_is_not_looked_at(use: str, tmp_path: Path) -> None:
    line = f"made = _kernel[(1,)](x, torch.empty_like(x), 100, 1, BLOCK=128)\n    real = {use}"
    _, told = trace("", line, tmp_path)
    rejection = told.get("rejection")
    assert isinstance(rejection, dict) and (rejection["guard"], "what a launch returns" in rejection["reason"]) == ("state", True), told


HIDES = "class Hides:\n    def __enter__(self):\n        return self\n    def __exit__(self, *error):\n        return True\n"


@pytest.mark.parametrize(
    "look",
    [
        "type(_kernel[(1,)](x, torch.empty_like(x), 100, 1, BLOCK=128)).run",
        "torch.cuda.get_device_properties(0).no_such_thing",
        "torch.cuda.current_stream().no_such_thing",
    ],
)
def test_no_context_hides_that_something_was_asked(look: str, tmp_path: Path) -> None:
    _, told = trace(HIDES, f"real = False\n    with Hides():\n        {look}", tmp_path)
    rejection = told.get("rejection")
    assert isinstance(rejection, dict) and rejection["guard"] == "state", told


def test_it_may_be_kept_and_counts_as_true(tmp_path: Path) -> None:
    line = "made = _kernel[(1,)](x, torch.empty_like(x), 100, 1, BLOCK=128)\n    real = made is None or not made"
    assert "plans" in trace("", line, tmp_path)[1]


CHANGING = {
    "a closure": ("", "calls = []\n    grid = lambda meta: (calls.append(1), 1)[1:]"),
    "a default": ("", "grid = lambda meta, calls=[]: (calls.append(1), 1)[1:]"),
    "an object": (
        "class G:\n    def __init__(self):\n        self.n = 0\n    def of(self, meta):\n        self.n += 1\n        return (1,)\n",
        "grid = G().of",
    ),
}


@pytest.mark.parametrize("name", CHANGING)
def test_a_grid_function_changes_nothing(name: str, tmp_path: Path) -> None:
    before, line = CHANGING[name]
    _, told = trace(before, f"{line}\n    _kernel[grid](x, torch.empty_like(x), 100, 1, BLOCK=128)\n    real = 0", tmp_path)
    rejection = told.get("rejection")
    assert isinstance(rejection, dict) and (rejection["guard"], "grid function" in rejection["reason"]) == ("state", True), told


@pytest.mark.parametrize(("option", "passes"), [("do_bench=lambda call, quantiles: [1.0] * 3", False), ("use_cuda_graph=False", True)])
def test_an_autotuner_measures_as_triton_does(option: str, passes: bool, tmp_path: Path) -> None:
    tuned = f"@triton.autotune([triton.Config({{'BLOCK': block}}) for block in (128, 256)], key=['n'], {option})\n@triton.jit"
    source = f"{KERNEL.replace('@triton.jit', tuned)}\ndef run(x):\n    real = 0{LAUNCH.replace(', BLOCK=128', '')}"
    told = trace_source(source, str(tmp_path / "candidate.py"), Target(), [(CELL.inputs, 1)])
    assert told.get("rejection", {"guard": None})["guard"] == (None if passes else "launch_feature"), told


QUESTIONS = {
    "a mixture": ("", "real = torch.is_grad_enabled() and not torch.is_autocast_enabled()"),
    "another mixture": ("", "real = torch.is_autocast_enabled() and torch.get_autocast_dtype('cuda') == torch.float16"),
    "of three": ("", "real = torch.is_grad_enabled() and not torch.compiler.is_compiling() and not x.requires_grad"),
    "asked after another": ("", "real = torch.compiler.is_compiling() and not (torch.is_grad_enabled() or torch.jit.is_tracing())"),
    "tracing": ("", "real = torch.jit.is_tracing()"),
    "a foreign function cached": ("import functools\nasked = functools.lru_cache(torch.is_grad_enabled)\n", "real = asked()"),
    "a part of it cached": ("import functools\nasked = functools.lru_cache(functools.partial(torch.is_grad_enabled))\n", "real = asked()"),
    "a name of its own": ("from torch import is_grad_enabled\n", "real = is_grad_enabled()"),
    "a default": ("def asked(ask=torch.is_grad_enabled):\n    return ask()\n", "real = asked()"),
    "compiling": ("ask = torch.compiler.is_compiling\n", "real = ask()"),
    "the stream": ("from torch.cuda import current_stream\n", "real = current_stream().cuda_stream != 0"),
    "the driver's stream": ("", "real = triton.runtime.driver.active.get_current_stream(0)"),
    "a cached answer": ("import functools\n@functools.lru_cache\ndef asked():\n    return torch.is_grad_enabled()\n", "real = asked()"),
    "another": ("from functools import cache\n@cache\ndef asked():\n    return torch.is_grad_enabled()\n", "real = asked()"),
    "bounded": ("import functools\n@functools.lru_cache(maxsize=4)\ndef asked():\n    return torch.is_grad_enabled()\n", "real = asked()"),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_second_call_is_in_training_however_it_is_asked(name: str, tmp_path: Path) -> None:
    _, told = trace(*QUESTIONS[name], tmp_path)
    rejection = told.get("rejection")
    assert isinstance(rejection, dict) and rejection["guard"] == "state", told
    assert "second call" in rejection["reason"] or "asks torch" in rejection["reason"], told


@pytest.mark.parametrize("made", ["x.clone()", "torch.empty_like(x)", "x.view(-1)"])
def test_whether_a_tensor_of_its_own_requires_gradients_is_not_known(made: str, tmp_path: Path) -> None:
    rejection = trace("", f"real = ({made}).requires_grad", tmp_path)[1].get("rejection")
    assert isinstance(rejection, dict) and (rejection["guard"], ".requires_grad" in rejection["reason"]) == ("state", True)


CACHED = {
    "a list": ("    return [0]\n", "s = kept()\n    s[0] += 1\n    real = s[0] > 3"),
    "a dictionary": ("    return {}\n", "s = kept()\n    s[len(s)] = 1\n    real = len(s) > 3"),
    "an object": ("    return S()\n", "real = kept().bump() > 3"),
}


@pytest.mark.parametrize("name", CACHED)
def test_what_is_cached_is_not_changed(name: str, tmp_path: Path) -> None:
    returned, line = CACHED[name]
    counter = "class S:\n    def __init__(self):\n        self.n = 0\n    def bump(self):\n        self.n += 1\n        return self.n\n"
    before = f"import functools\n{counter}@functools.lru_cache\ndef kept():\n{returned}"
    rejection = trace(before, line, tmp_path)[1].get("rejection")
    assert isinstance(rejection, dict) and rejection["guard"] == "state", rejection


def test_numbers_may_be_cached(tmp_path: Path) -> None:
    before = "from functools import lru_cache\n@lru_cache\ndef blocks(n):\n    return triton.next_power_of_2(n)\n"
    assert "plans" in trace(before, "real = blocks(100) == 1", tmp_path)[1]


TRY = "try:\n    import {module}\n    HAS = True\nexcept ImportError:\n    HAS = False\n"


@pytest.mark.parametrize("module", ["no_such_module", "no_such.part.of_it", "transformers"])
def test_nothing_depends_on_which_packages_there_are(module: str, tmp_path: Path) -> None:
    _, told = trace(TRY.format(module=module), "real = HAS", tmp_path)
    rejection = told.get("rejection")
    assert isinstance(rejection, dict) and (rejection["guard"], "can be imported" in rejection["reason"]) == ("state", True), told
    assert "plans" in trace(TRY.format(module=module), "real = False", tmp_path)[1]


def test_parts_of_optional_packages_can_be_named(tmp_path: Path) -> None:
    before = "try:\n    from no_such.part import function\nexcept ImportError:\n    function = None\n"
    assert "plans" in trace(before, "real = False", tmp_path)[1]


def test_torch_is_a_build_for_cuda(tmp_path: Path) -> None:
    line = "real = torch.version.cuda is None or torch.__version__.endswith('cpu')"
    plan = trace("", line, tmp_path)[1]["plans"]
    assert plan == trace("", "real = False", tmp_path)[1]["plans"]


@pytest.mark.parametrize(
    ("shown", "plain"),
    [
        ("str(P(torch.empty).dtype)", False),
        ("f'{P(triton.cdiv).dtype}'", False),
        ("repr(P((1, _kernel)).dtype)", False),
        ("str(P(tl.float32).dtype)", True),
        ('f"{x.dtype} {x.device} {x.device.type} {x.shape!r}"', True),
        ("str(P((1, torch.float16)).dtype)", True),
    ],
)
def test_a_text_is_made_of_what_has_one_text_everywhere(shown: str, plain: bool, tmp_path: Path) -> None:
    source, told = trace(FIELD, f"real = {shown} == ''", tmp_path)
    assert screen(source)[1] is None
    assert ("plans" in told) is plain, told
    assert plain or "a text is made of" in str(told)
