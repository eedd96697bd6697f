"""The screen: it lets good candidates through, names what is wrong with others, and takes milliseconds."""

from __future__ import annotations

import pytest

from referee.reading.markdown import unfenced
from referee.reading.screen import NAMES, screen
from tests.referee.trace.bad import ALLOCATE, BAD, COPY, LAUNCH, body
from tests.referee.trace.good import GOOD


def candidate(*lines: str, before: str = "") -> str:
    """A candidate with the copy kernel and this `run`."""
    return COPY + body(*lines, before=before)


@pytest.mark.parametrize("name", GOOD)
def test_good_candidates_pass_every_check(name: str) -> None:
    checks, rejection = screen(GOOD[name].source)
    assert rejection is None
    assert [(check.name, check.status) for check in checks] == [(name, "pass") for name in NAMES]


REJECTED = {
    "syntax": ("parse", "line 2", "def run(x):\n    return (x\n"),
    "no_run": ("entry_point", "`run`", COPY),
    # Grammar of Python 3.12: refused by every Python, so that no version reads another program.
    "type_parameters": ("parse", "syntax error", candidate("return x", before="\ndef pick[kernel](x):\n    return kernel\n")),
    "type_statement": ("parse", "syntax error", candidate("return x", before="type copies = list[int]\n")),
    "run_twice": ("entry_point", "more than once", candidate("pass") + "\ndef run(x):\n    pass\n"),
    "run_is_a_value": ("entry_point", "`run`", COPY + "\nrun = 3\n"),
    "run_in_class": ("entry_point", "`run`", COPY + "\nclass A:\n    def run(x):\n        pass\n"),
    "no_kernel": ("no_kernel", "Triton kernel", "def run(x):\n    return torch.softmax(x, -1)\n"),
    "import": ("imports", "`cupy`", "import cupy\n" + candidate("return x")),
    "functional": ("torch_compute", "torch.nn.functional", "import torch.nn.functional as F\n" + candidate("return F.gelu(x)")),
    "softmax": ("torch_compute", "`torch.softmax`: the answer must be computed in Triton", candidate("return torch.softmax(x, -1)")),
    "cat": ("torch_compute", "allocate the whole and assign or write its parts", candidate("return torch.cat([copy(x), copy(x)])")),
    "dotted_functional": ("torch_compute", "torch.nn.functional.gelu", candidate("return torch.nn.functional.gelu(x)")),
    "method": ("torch_compute", "`.softmax`", candidate("return x.softmax(-1)")),
    "compile": ("torch_compute", "torch.compile", candidate("return torch.compile(copy)(x)")),
    "host_data": ("torch_compute", "torch.full", candidate("t = torch.tensor([1.0])", "return t")),
    "item": ("needs_value", "`.item`", candidate("k = x.item()", "return k")),
    "cpu": ("needs_value", "`.cpu`", candidate("return x.cpu()")),
    "try": ("try_except", "try/except", candidate("try:", f"    {ALLOCATE}", "except Exception:", "    pass", "return y")),
    "try_at_top": ("try_except", "try/except", "try:\n    pass\nfinally:\n    pass\n" + candidate("return x")),
    "class_of_torch": ("statement", "inherits", candidate("return A()(x)", before="class A(torch.nn.GELU):\n    pass\n")),
    "class_in_run": ("statement", "top level", candidate("class A:", "    pass", "return x")),
    "class_state": ("state", "setting", candidate("A.y = 1", "return x", before="class A:\n    y = 0\n")),
    "class_method": (
        "torch_compute",
        "`.softmax`",
        candidate("return A().go(x)", before="class A:\n    def go(self, x):\n        return x.softmax(-1)\n"),
    ),
    "cached_output": (
        "state",
        "keep only numbers",
        candidate("return f(x)", before="import functools\n@functools.lru_cache\ndef f(x):\n    return torch.empty_like(x)\n"),
    ),
    "helper": ("torch_compute", "`.exp`", candidate("return g(x)", before="def g(x):\n    return x.exp()\n")),
    "helper_by_decorator": ("torch_compute", "`.exp`", COPY + "\ndef g(f):\n    return lambda x: x.exp()\n\n@g\ndef run(x):\n    pass\n"),
    "query_as_a_value": ("vocabulary", "is not called", candidate("f = torch.is_grad_enabled", "return x")),
    "query_imported": (
        "vocabulary",
        "is not called",
        candidate("f = ask", "return x", before="from torch.cuda import is_available as ask\n"),
    ),
    "query_of_the_driver": ("vocabulary", "is not called", candidate("f = triton.runtime.driver.active.get_current_stream", "return x")),
    "query_of_a_variable": (
        "vocabulary",
        "is not called",
        candidate("d = triton.runtime.driver.active", "f = d.get_current_stream", "return x"),
    ),
    "query_by_name": ("vocabulary", "is not called", candidate("f = getattr(torch, 'is_grad_enabled')", "return x")),
    "environment": ("vocabulary", "`os.environ`", candidate("return os.environ", before="import os\n")),
    "optional_library": (
        "vocabulary",
        "`apex.norm`",
        candidate("return apex.norm(x)", before="try:\n    import apex\nexcept ImportError:\n    pass\n"),
    ),
    "warmup": ("launch_feature", "`copy.warmup`", candidate("copy.warmup(x, x, 1, BLOCK=128, grid=(1,))", "return x")),
    "global": ("state", "`global`", candidate("global COUNT", "COUNT = 1", "return x", before="COUNT = 0\n")),
    "cache": ("state", "`CACHE`", candidate("CACHE[x.shape] = 1", "return x", before="CACHE = {}\n")),
    "cache_update": ("state", "`CACHE`", candidate("CACHE.update(a=1)", "return x", before="CACHE = {}\n")),
    "device_set": ("state", "with torch.cuda.device(x.device)", candidate("torch.cuda.set_device(0)", "return x")),
    "device_set_by_the_driver": (
        "state",
        "with torch.cuda.device(x.device)",
        candidate("d = triton.runtime.driver.active", "d.set_device(0)", "return x"),
    ),
    "function_attribute": ("state", "`run`", candidate("return run.cache")),
    "attribute_set": ("state", "setting", candidate("x.y = 1", "return x")),
    "called_default": ("state", "take None, and make it in", COPY + "\ndef run(x, device=torch.device('cuda')):\n    return x\n"),
    "mutable_default": ("state", "mutable default", COPY + "\ndef run(x, cache={}):\n    return x\n"),
    "host_decorator": ("state", "decorator", COPY + "\n@torch.compiler.disable\ndef run(x):\n    return x\n"),
    "eval": ("vocabulary", "`eval`", candidate('eval("1")', "return x")),
    "exec": ("vocabulary", "`exec`", candidate('exec("1")', "return x")),
    "open": ("vocabulary", "`open`", candidate('open("f")', "return x")),
    "getattr": ("vocabulary", "`getattr`", candidate('getattr(x, "s" + "um")()', "return x")),
    "getattr_written_out": ("torch_compute", "`.softmax`", candidate('getattr(x, "softmax")(-1)', "return x")),
    "getattr_as_a_value": ("vocabulary", "`getattr` may only be called", candidate("f = getattr", "f(x, 'shape')", "return x")),
    "named_tuples_without_one": ("vocabulary", "`._replace` is private", candidate("y = x._replace(a=1)", "return y")),
    "more_of_a_named_tuple": (
        "vocabulary",
        "`._make` is private",
        candidate("return P._make(x)", before="import collections\nP = collections.namedtuple('P', 'a')\n"),
    ),
    "hasattr_of_what_triton_hides": ("vocabulary", "`._utils` is private", candidate("known = hasattr(triton, '_utils')", "return x")),
    "hasattr_of_what_is_called_as_triton_is": (
        "vocabulary", "`.grad_fn`", candidate("asks = lambda tl: hasattr(tl, 'grad_fn')", "known = asks(x)", "return x"),
    ),
    "hasattr_of_what_is_no_longer_triton": ("vocabulary", "`.grad_fn`", candidate("tl = x", "known = hasattr(tl, 'grad_fn')", "return x")),
    "hasattr_of_the_runtime": ("vocabulary", "triton.runtime.cache", candidate("known = hasattr(triton.runtime, 'cache')", "return x")),
    "hasattr_handed_on": ("vocabulary", "`hasattr` may only be called", candidate("list(map(hasattr, [x], ['y']))", "return x")),
    "module_of_a_module": (
        "vocabulary",
        "`dataclasses.sys.modules`",
        candidate("'referee' in dataclasses.sys.modules", "return x", before="import dataclasses\n"),
    ),
    "module_from_a_module": ("vocabulary", "`enum.sys.flags`", candidate("sys.flags", "return x", before="from enum import sys\n")),
    "frame": ("vocabulary", "`.f_back`", candidate("(i for i in x.shape).gi_frame.f_back", "return x")),
    "frame_by_another_name": (
        "vocabulary",
        "`.gi_frame`",
        candidate("(i for i in x.shape).gi_frame", "return x", before="class A:\n    gi_frame = 0\n"),
    ),
    "after_a_word": ("needs_value", "`.item`", candidate("torch.Tensor.item(x)", "return x")),
    "unknown_after_a_word": ("vocabulary", "`.mro`", candidate("torch.Tensor.mro()", "return x")),
    "inference": ("vocabulary", "`.is_inference`", candidate("x.is_inference()", "return x")),
    "clock_of_a_log": (
        "vocabulary",
        "`.makeRecord`",
        candidate("L.makeRecord('', 0, '', 0, '', (), None)", "return x", before="import logging\nL = logging.getLogger('a')\n"),
    ),
    "made_anew": ("vocabulary", "`.__init__`", candidate("A().__init__(1)", "return x", before="class A:\n    pass\n")),
    "wraps_that_sets": (
        "vocabulary",
        "`functools.wraps`",
        candidate("functools.wraps(run, updated=())(copy)", "return x", before="import functools\n"),
    ),
    "annotation_that_runs": ("statement", "annotation", COPY + "\ndef run(x: print(1)):\n    return x\n"),
    "result_annotation_that_runs": ("statement", "annotation", COPY + "\ndef run(x) -> (lambda: 1)():\n    return x\n"),
    "annotation_of_a_name_that_runs": ("statement", "annotation", candidate("return x", before="A: print(1) = 1\n")),
    "default_that_runs": ("vocabulary", "`eval`", candidate("return x", before="def unused(a=[eval('1')][0]):\n    pass\n")),
    "class_decorator": ("statement", "on classes", candidate("return x", before="@print\nclass A:\n    y = 0\n")),
    "given_to_a_class_decorator": (
        "vocabulary",
        "`eval`",
        candidate("return x", before="import dataclasses\n@dataclasses.dataclass(frozen=eval('1'))\nclass A:\n    y = 0\n"),
    ),
    "given_to_a_decorator": (
        "vocabulary",
        "`eval`",
        candidate("return x", before="import functools\n@functools.lru_cache(maxsize=eval('1'))\ndef unused():\n    pass\n"),
    ),
    "called_by_a_decorator": (
        "vocabulary",
        "`eval`",
        candidate("return x", before="def d(f):\n    f()\n    return f\n@d\ndef unused():\n    eval('1')\n"),
    ),
    "method_called_by_a_decorator": (
        "vocabulary",
        "`eval`",
        candidate("return x", before="def d(f):\n    return f()\nclass A:\n    @d\n    def unused():\n        eval('1')\n"),
    ),
    "called_by_a_class": (
        "vocabulary",
        "`eval`",
        candidate("return x", before="def f():\n    return eval('1')\nclass A:\n    y = f()\n"),
    ),
    "dunder": ("vocabulary", "`.__class__`", candidate("x.__class__", "return x")),
    "private": ("vocabulary", "private", candidate("torch._C.x", "return x")),
    "builtins": ("vocabulary", "`__builtins__`", candidate('__builtins__["eval"]', "return x")),
    "undefined": ("vocabulary", "`y`", candidate("copy[(1,)](x, y, 1)", "return x")),
    "print": ("vocabulary", "printing", candidate("print(x)", "return x")),
    "ops": ("vocabulary", "torch.ops", candidate("return torch.ops.aten.exp(x)")),
    "default_device": ("vocabulary", "set_default_device", candidate('torch.set_default_device("cuda")', "return x")),
    "stream": ("launch_feature", "one stream", candidate("s = torch.cuda.Stream()", "return x")),
    "testing": ("vocabulary", "triton.testing", candidate("triton.testing.do_bench(run)", "return x")),
    "tl_on_host": ("vocabulary", "belongs in kernels", candidate("return tl.exp(x)")),
    "context": ("vocabulary", "torch.autocast", candidate('with torch.autocast("cuda"):', "    pass", "return x")),
    "module_loop": ("module_level", "top level", candidate("return x", before="for i in range(3):\n    run(i)\n")),
    "module_setting": (
        "module_level",
        "`torch.set_float32_matmul_precision('high')`: only",
        candidate("return x", before="torch.set_float32_matmul_precision('high')\n"),
    ),
    "module_in_evaluation": (
        "vocabulary",
        "`.eval()` changes nothing",
        candidate("return M().eval()(x)", before="class M(torch.nn.Module):\n    pass\n"),
    ),
    "module_call": ("module_level", "top level", candidate("return x", before="run(1)\n")),
    "generator": ("statement", "generators", candidate("yield x")),
    "lambda_state": ("state", "mutable default", candidate("f = lambda a, b=[]: a", "return x")),
    "import_in_run": ("imports", "`ctypes`", candidate("import ctypes", "return x")),
    "functional_in_run": ("torch_compute", "torch.nn.functional", candidate("import torch.nn.functional as F", "return F.gelu(x)")),
    "plain_global": (
        "kernel_constant",
        "tl.constexpr",
        COPY.replace("BLOCK: tl.constexpr", "m").replace("BLOCK", "SIZE") + body("return x", before="SIZE = 64\n"),
    ),
    "kernel_print": ("kernel_vocabulary", "printing", COPY.replace("i = ", "tl.device_print('x')\n    i = ") + body("return x")),
}


@pytest.mark.parametrize("name", REJECTED)
def test_bad_candidates_are_rejected_with_a_reason(name: str) -> None:
    guard, says, source = REJECTED[name]
    checks, rejection = screen(source)
    assert rejection is not None
    assert (rejection.stage, rejection.guard, says in rejection.reason) == ("screen", guard, True), rejection
    statuses = [check.status for check in checks]
    assert statuses == ["pass"] * statuses.index("fail") + ["fail"] + ["skipped"] * (len(NAMES) - 1 - statuses.index("fail"))


@pytest.mark.parametrize("name", ["softmax", "item", "memoised_output", "exception", "stream"])
def test_what_the_tracer_would_catch_is_mostly_caught_here(name: str) -> None:
    _, rejection = screen(BAD[name].source)
    if name == "exception":
        assert rejection is None
    else:
        assert rejection is not None and rejection.guard == BAD[name].guard


@pytest.mark.parametrize(
    "lines",
    [
        ("y = torch.empty_like(x)", "if y.numel() == 0:", "    return y", LAUNCH, "return y"),
        ("assert x.is_cuda and x.dim() == 2, 'two dimensions'", ALLOCATE, LAUNCH, "return y"),
        ("if not x.is_contiguous():", "    raise ValueError(f'bad {x.shape!r}')", ALLOCATE, LAUNCH, "return y"),
        ("def grid(meta):", "    return (triton.cdiv(x.numel(), meta['BLOCK']),)", ALLOCATE, LAUNCH, "return y"),
        ("sizes = [s for s in x.shape]", "y = x.new_empty(tuple(sizes))", LAUNCH, "return y.view_as(x)"),
        ("dtype = torch.float32 if x.dtype == torch.float16 else x.dtype", ALLOCATE, LAUNCH, "return y.to(dtype)"),
        ("known = hasattr(torch.cuda, 'is_bf16_supported') and getattr(torch.cuda, 'is_bf16_supported')()", ALLOCATE, LAUNCH, "return y"),
        ("known = hasattr(tl, 'make_tensor_descriptor') or hasattr(triton, 'set_allocator')", ALLOCATE, LAUNCH, "return y"),
        ("n = int(math.ceil(x.numel() / 128))", ALLOCATE, LAUNCH, "return y"),
        ("with torch.cuda.device(x.device), torch.no_grad():", f"    {ALLOCATE}", f"    {LAUNCH}", "return y"),
        ("bits = torch.finfo(x.dtype).bits + x.dtype.itemsize", ALLOCATE, LAUNCH, "return y"),
        ("*lead, n = x.shape", ALLOCATE, LAUNCH, "return y"),
        ("low = torch.finfo(x.dtype).min", "version = triton.__version__.split('.')[0]", ALLOCATE, LAUNCH, "return y"),
        ("log.debug('launch')", "log.info(f'{x.shape}')", "warnings.warn(f'{x.shape}')", ALLOCATE, LAUNCH, "return y"),
        ("table = {'warps': 4}", "table['warps'] = 8", ALLOCATE, LAUNCH, "return y"),
        ("out: torch.Tensor = torch.empty_like(x)", "copy[(1,)](x, out, x.numel(), BLOCK=128, num_warps=WARPS[x.dtype])", "return out"),
    ],
)
def test_ordinary_host_code_passes(lines: tuple[str, ...]) -> None:
    setup = "import logging, math, warnings\nfrom typing import Any\n\ntorch.manual_seed(0)\nlog = logging.getLogger('k')\n"
    source = setup + "WARPS = {torch.float16: 4, torch.float32: 8}\n" + candidate(*lines)
    assert screen(source)[1] is None


HARMLESS = {
    "unused_imports": """
import os, sys, time, logging
import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn
""",
    "optional_import": """
try:
    import apex
    HAS_APEX = True
except ImportError:
    HAS_APEX = False
""",
    "version_switch": """
if triton.__version__ >= "3.0":
    from triton.language.extra.libdevice import rsqrt
else:
    from triton.language.math import rsqrt
""",
    "test_function": """
def test_run():
    assert torch.allclose(run(X), torch.softmax(X, -1)), print("no")
""",
    "benchmark": """
@triton.testing.perf_report(triton.testing.Benchmark(x_names=["N"]))
def benchmark(N):
    return triton.testing.do_bench(lambda: 0)
""",
    "constants": """
A, B = 1, 2
TABLE = {}
TABLE["a"] = A
for size in (64, 128):
    TABLE[size] = size // 32
""",
    "function_class": """
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.n = x.shape[0]
        return x

    @staticmethod
    def backward(ctx, dy):
        return dy.sum(0).softmax(-1)

f = F.apply
""",
    "module_class": """
class M(torch.nn.Module):
    def __init__(self, eps=1e-6):
        super().__init__()
        self._eps = eps

    def forward(self, x):
        return self._eps

m = M()
""",
    "cached_settings": """
import functools

@functools.lru_cache(maxsize=None)
def settings(n):
    return triton.next_power_of_2(n)
""",
    "guard_function": """
def guard(device):
    return torch.cuda.device(device)
""",
    "logger": """
import logging

logger = logging.getLogger(__name__)
logging.basicConfig()
""",
    "decorator": """
import functools

def dense(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        return fn(*[a.contiguous() for a in args], **kwargs)
    return inner
""",
}
USES = {
    "function_class": ("f(x)",),
    "module_class": ("m(x)",),
    "cached_settings": ("settings(x.shape[0])",),
    "guard_function": ("with guard(x.device):", "    pass"),
    "decorator": ("dense(run)(x)",),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_stands_around_real_kernels_passes(name: str) -> None:
    assert screen(candidate(*USES.get(name, ()), ALLOCATE, LAUNCH, "return y", before=HARMLESS[name]))[1] is None


def test_the_block_that_defines_run_is_taken_out_of_markdown() -> None:
    code = candidate(ALLOCATE, LAUNCH, "return y")
    code += "\n"
    assert unfenced(f"Here:\n\n```sh\npip\n```\n```python\n{code}```\nDone.\n") == code
    assert unfenced("```python\n" + code) == code
    assert unfenced(f"<think>\n```python\ndef run(x):\n    return x\n```\n</think>\n```python\n{code}```\n") == code
    kernel, host = "@triton.jit\ndef k(x):\n    pass\n", "def run(x):\n    k[(1,)](x)\n    return x\n"
    assert unfenced(f"```python\n{kernel}```\nand\n```sh\npip\n```\n```\n{host}```\n") == f"{kernel}\n{host}"
    assert unfenced(f"```python\n{kernel}{host}```\nUse:\n```python\nprint(run(1))\n```\n") == kernel + host
    assert unfenced("\ufeff" + code) == code
    for text in (code, f'"""```\ndef run(x): pass\n```"""\n{code}', "```\nno code\n```", "def run(:\n", ""):
        assert unfenced(text) == text


@pytest.mark.parametrize(
    "first", ["# -*- coding: raw_unicode_escape -*-", "# a\u2028b\n# vim: set fileencoding=cp437 :", "#coding=utf-7\r"]
)
def test_a_file_that_python_reads_as_another_text_is_refused(first: str) -> None:
    _, rejection = screen(first + "\n" + candidate(ALLOCATE, LAUNCH, "return y"))
    assert rejection is not None and rejection.guard == "parse" and "encoding" in rejection.reason


def test_utf_8_may_be_named() -> None:
    assert screen("# -*- coding: UTF-8 -*-\n" + candidate(ALLOCATE, LAUNCH, "return y"))[1] is None


def test_the_main_block_is_ignored() -> None:
    source = candidate(ALLOCATE, LAUNCH, "return y") + '\n\nif __name__ == "__main__":\n    import os\n    print(os)\n'
    assert screen(source)[1] is None
    _, rejection = screen(source.replace('"__main__"', '"__main__" or True'))
    assert rejection is not None and rejection.guard in ("module_level", "vocabulary")
