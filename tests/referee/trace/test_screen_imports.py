"""Imports that nothing in `run` needs, and what little else real files bring along: they pass, and nothing comes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from referee.reading.kernels import extract
from referee.reading.screen import screen
from referee.target import Target
from referee.tracing.tracer import trace_source
from tests.referee.trace.bad import ALLOCATE, COPY, LAUNCH, body
from tests.referee.trace.good import rows

CELL = rows("x", shape=(3, 100))
DATA = "import dataclasses, os, sys, time\nfrom dataclasses import dataclass, field\n"


def candidate(before: str = "", *lines: str) -> str:
    """A candidate that is right, with these definitions and these lines in `run`."""
    return COPY + body(*lines, ALLOCATE, LAUNCH, "return y", before=before)


def traced(source: str, tmp_path: Path) -> dict[str, object]:
    return trace_source(source, str(tmp_path / "candidate.py"), Target(), [(CELL.inputs, len(CELL.outputs))])


PASSES = {
    "for_tests": (
        "import random, re, shutil, string, tempfile, timeit, traceback, types, unittest, platform, pprint, glob, datetime\n"
        "from pathlib import Path\nHERE = 1\n",
        (),
    ),
    "of_torch": (
        "import torch.profiler, torch.optim as optim\nfrom torch.utils.data import DataLoader\nfrom torch.types import Device\n"
        "import torch.utils.checkpoint\nfrom torch.nn.parameter import Parameter\nfrom torch.nn import init\n"
        "from torch.amp import custom_bwd, custom_fwd\nfrom torch.autograd.function import once_differentiable\n"
        "import torch.cuda.amp as amp\nfrom torch.compiler import is_compiling\n",
        (),
    ),
    "in_a_test": ("import random\n\ndef test_run():\n    run(torch.randn(random.randint(1, 9)))\n", ()),
    "categories": (
        "import warnings\n",
        tuple(
            f"warnings.warn('small', {name})"
            for name in ("RuntimeWarning", "DeprecationWarning", "FutureWarning", "PendingDeprecationWarning")
        ),
    ),
    "maxsize": ("import sys\n", ("assert x.numel() < sys.maxsize",)),
    "error": ('class E(ValueError):\n    """Too large."""\n\nclass F(E):\n    pass\n', ("if x.numel() < 0:", "    raise F('none')")),
    "field": (
        DATA + "@dataclass(frozen=True)\nclass A:\n"
        "    n: int = field(default=1, repr=False)\n    sizes: list = field(default_factory=list)\n",
        ("n = A().n",),
    ),
    "field_called": (DATA + "@dataclasses.dataclass\nclass A:\n    n: int = dataclasses.field(default=1)\n", ("n = A().n",)),
}


@pytest.mark.filterwarnings("ignore:small")
@pytest.mark.parametrize("name", PASSES)
def test_what_nothing_comes_of_passes(name: str, tmp_path: Path) -> None:
    before, lines = PASSES[name]
    source = candidate(before, *lines)
    assert screen(source)[1] is None
    assert "plans" in traced(source, tmp_path)


FIELD = DATA + "@dataclass\nclass A:\n    x: time.time = field(default=1)\n"
SET_NAME = "class B:\n    def __set_name__(self, a, n):\n        self.kept = a.x\n"
REFUSED = {
    # What is imported is used in what a judgement runs.
    "used": ("import random\n", "n = random.random()", "`random.random`"),
    "by_another_name": ("import random as r\n", "n = r.getrandbits(1)", "`random.getrandbits`"),
    "from": ("from random import random\n", "n = random()", "`random.random`"),
    "from_as_torch": ("from random import random as torch\n", "n = torch()", "`torch` is assigned more than once"),
    "as_tl": ("import random as tl\n", "n = 1", "`tl` is assigned more than once"),
    "kept": ("import random\nn = random.random()\n", "m = n", "`random.random`"),
    "alias": ("import random\nn = random.random\n", "m = n()", "`random.random`"),
    "in_a_helper": ("import random\ndef f():\n    return random.random()\n", "n = f()", "`random.random`"),
    "in_a_class": ("from pathlib import Path\nclass A:\n    here = Path('.')\n", "n = A.here", "`pathlib.Path`"),
    "import_in_a_class": ("class A:\n    import random\n", "n = A.random", "a class holds methods and constants only"),
    "import_in_run": ("", "from random import random; n = random()", "`random.random`"),
    "as_a_base": ("import types\nclass A(types.SimpleNamespace):\n    pass\n", "n = A()", "inherits"),
    "as_a_decorator": ("import types\n@types.coroutine\ndef f():\n    return 1\n", "n = f()", "decorator"),
    "as_a_default": ("import random\ndef f(n=random.random()):\n    return n\n", "n = f()", "`random.random`"),
    "in_a_try": ("try:\n    import random\n    n = random.random()\nexcept ImportError:\n    n = 1\n", "m = n", "`random.random`"),
    "fallback": ("try:\n    import no_such as r\nexcept ImportError:\n    import random as r\n", "n = r.random()", "`r`"),
    "modules_of_a_module": ("import types\n", "n = types.sys", "`types.sys`"),
    "part_of_torch": ("import torch.profiler\n", "n = torch.profiler.kineto_available()", "torch.profiler"),
    "from_part_of_torch": ("from torch.utils import data\n", "n = data.sys", "torch.utils.data"),
    "class_of_torch": ("from torch.nn import init\n", "init.ones_(x)", "torch.nn.init.ones_"),
    "patched": ("import random\nrandom.random = max\n", "n = 1", "setting `.random`"),
    "other_warning": ("import warnings\n", "warnings.warn('a', ResourceWarning)", "`ResourceWarning`"),
    "other_of_sys": ("import sys\n", "n = sys.maxunicode", "`sys.maxunicode`"),
    "after_maxsize": ("import sys\n", "n = sys.maxsize.from_bytes(b'')", "`.from_bytes`"),
    # An error that does something.
    "error_with_a_method": ("class E(ValueError):\n    def __str__(self):\n        return 'a'\n", "n = 1", "nothing but `pass`"),
    "error_with_a_name": ("class E(ValueError):\n    args = 1\n", "n = 1", "nothing but `pass`"),
    "error_below_an_error": ("class E(ValueError):\n    pass\nclass F(E):\n    args = 1\n", "n = 1", "nothing but `pass`"),
    "error_and_more": ("class A:\n    n = 1\nclass E(ValueError, A):\n    pass\n", "n = 1", "nothing but `pass`"),
    "error_of_the_file": ("ValueError = torch.Tensor\nclass E(ValueError):\n    pass\n", "n = 1", "inherits"),
    "error_from_elsewhere": ("from unittest import SkipTest as ValueError\nclass E(ValueError):\n    pass\n", "n = 1", "inherits"),
    "base_error": ("class E(BaseException):\n    pass\n", "n = 1", "inherits"),
    # A data class keeps its annotations, in which no word is looked at.
    "fields": (FIELD, "t = dataclasses.fields(A)[0].type()", "`dataclasses.fields`"),
    "fields_by_name": (FIELD + "from dataclasses import fields\n", "t = fields(A)[0].type()", "`dataclasses.fields`"),
    "field_kept": (DATA + "f = field()\n@dataclass\nclass A:\n    x: time.time = f\n", "t = f.type()", "`dataclasses.field`"),
    "field_kept_beside": ("x = 0\n" + FIELD + "    y = [x]\n", "t = A.y[0].type()", "`dataclasses.field`"),
    "field_as_a_default": ("x = 0\n" + FIELD + "    def m(self, f=x):\n        return f.type\n", "t = A().m()()", "`dataclasses.field`"),
    "field_of_no_data_class": (FIELD.replace("@dataclass\n", ""), "f = A.x; dataclass(A); t = f.type()", "`dataclasses.field`"),
    "field_in_a_list": (FIELD.replace("field(default=1)", "[field()]"), "t = A.x[0].type()", "`dataclasses.field`"),
    "field_by_walrus": (FIELD.replace("field(default=1)", "(f := field(default=1))"), "t = A.f.type()", "`dataclasses.field`"),
    # Code of the file that would run while the field is in the class.
    "field_seen_by_a_base": (
        FIELD.replace("A:", "A(B):").replace(
            "@dataclass\n", "class B:\n    def __init_subclass__(self):\n        self.kept = self.x\n@dataclass\n"
        ),
        "t = A.kept.type()",
        "`dataclasses.field`",
    ),
    "field_seen_by_a_member": (
        FIELD.replace("@dataclass\n", SET_NAME + "@dataclass\n") + "    y = B()\n",
        "t = A.y.kept.type()",
        "`dataclasses.field`",
    ),
    "field_seen_by_a_default": (
        FIELD.replace("@dataclass\n", SET_NAME + "C = B()\n@dataclass\n") + "    y: int = field(default=C)\n",
        "t = C.kept.type()",
        "`dataclasses.field`",
    ),
    "field_seen_by_a_descriptor": (
        FIELD.replace("@dataclass\n", "def f(a):\n    return (a.x,)\n@dataclass\n") + "    y: int = classmethod(property(f))\n",
        "t = A.y[0].type()",
        "`dataclasses.field`",
    ),
    "field_seen_by_a_method": (
        FIELD + "    y: int\n    @classmethod\n    @property\n    def y(self):\n        return (self.x,)\n",
        "t = A.y[0].type()",
        "`dataclasses.field`",
    ),
    "field_in_run": (DATA, "f = field()", "`dataclasses.field`"),
    "field_given": (FIELD.replace("default=1", "default_factory=time.time"), "t = A().x", "`time.time`"),
    "field_under_a_name_of_python": (FIELD.replace("x:", "__del__:"), "n = 1", "__del__"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_comes_of_them_is_refused(name: str) -> None:
    before, line, says = REFUSED[name]
    _, rejection = screen(candidate(before, line))
    assert rejection is not None and says in rejection.reason, rejection


GC = "from gc import get_objects as {}\n"
TRIED = "try:\n    " + GC + "except ImportError:\n    {}\n"
# Of a name that is imported, and something else where that fails: what stands at the top level, and a line of `run`.
UNCLEAR = {
    "a function": (TRIED.format("f", "f = None"), "n = f()"),
    "python's own": (TRIED.format("len", "pass"), "n = len()"),
    "python's own, twice": (TRIED.format("sum", "from gc import get_stats as sum"), "n = sum()"),
    "getattr": (TRIED.format("getattr", "pass"), "n = getattr('time', 'shape')"),
    "hasattr": (TRIED.format("hasattr", "hasattr = None"), "n = hasattr('time', 'shape')"),
    "a loop": ("for i in (1,):\n    " + GC.format("sum"), "n = sum()"),
    "a loop and a value": ("f = None\nfor i in (1,):\n    " + GC.format("f"), "n = f()"),
    "a choice in a loop": ("for i in (1,):\n    if i:\n        " + GC.format("sum"), "n = sum()"),
    "a choice": ("f = None\nif True:\n    from os import getenv as f\n", "n = f('HOME')"),
    "a base": (TRIED.format("object", "from gc import get_stats as object") + "class A(object):\n    pass\n", "n = A()"),
    "a class": ("class B:\n    pass\n" + TRIED.format("B", "pass") + "class A(B):\n    pass\n", "n = A()"),
    "an error": (TRIED.format("ValueError", "from gc import get_stats as ValueError") + "class A(ValueError):\n    pass\n", "n = A()"),
    "a decorator": ("def d(f):\n    return f\n" + TRIED.format("d", "pass") + "@d\ndef g():\n    return 1\n", "n = g()"),
    "of a method": (
        TRIED.format("property", "property = None") + "class A:\n    @property\n    def g(self):\n        return 1\n",
        "n = A().g",
    ),
    "a context": (TRIED.format("c", "c = None"), "with c(): pass"),
    "handed on": (TRIED.format("f", "f = None"), "n = list(map(f, ()))"),
    "by a function inside": (TRIED.format("f", "f = None"), "def g(x):\n        from math import sqrt as f\n    n = f()"),
    "super": ("class A:\n    pass\ndef super():\n    return A()\n", "super().__init__()"),
}


@pytest.mark.parametrize("name", UNCLEAR)
def test_a_name_that_may_be_an_import_is_not_used(name: str) -> None:
    before, line = UNCLEAR[name]
    assert screen(candidate(before, line))[1] is not None


def test_it_may_stand_where_nothing_uses_it() -> None:
    assert screen(candidate(TRIED.format("f", "f = None") + "def test():\n    f()\n"))[1] is None


NEEDED = "try:\n    import triton.language as tl\nexcept {}:\n    {}\n"
REWORDED = {
    "plain": ("ImportError", "raise ImportError('needs Triton')"),
    "another error": ("(ImportError, AttributeError)", "raise RuntimeError"),
    "what was caught": ("ImportError as e", "raise ImportError(f'needs Triton: {e!r}') from e"),
    "from nothing": ("ImportError as e", "raise ModuleNotFoundError(e) from None"),
    "as it is": ("ImportError", "raise"),
    "after a constant": ("ImportError", "HAS = False\n    raise"),
}
NO_WORDING = {
    "computed": ("ImportError as e", "raise ImportError(repr(e))"),
    "of something else": ("ImportError as e", "raise ImportError(f'{torch}') from e"),
    "laid out": ("ImportError as e", "raise ImportError(f'{e:>{torch}}') from e"),
    "from something else": ("ImportError", "raise ImportError('none') from torch"),
    "by name": ("ImportError as e", "raise ImportError('none', name=torch) from e"),
    "of no error": ("ImportError", "raise torch"),
    "called": ("ImportError as e", "raise e.mro()"),
    "not at the end": ("ImportError", "if True:\n        raise ImportError"),
    "of the file's own": ("ImportError", "raise ValueError\nclass ValueError(RuntimeError):\n    pass"),
}


@pytest.mark.parametrize("name", REWORDED)
def test_an_import_that_is_needed_may_say_so(name: str, tmp_path: Path) -> None:
    source = candidate(NEEDED.format(*REWORDED[name]))
    assert screen(source)[1] is None
    assert "plans" in traced(source, tmp_path)


@pytest.mark.parametrize("name", NO_WORDING)
def test_it_may_do_nothing_else_then(name: str) -> None:
    assert screen(candidate(NEEDED.format(*NO_WORDING[name])))[1] is not None


def test_what_is_needed_and_missing_is_told(tmp_path: Path) -> None:
    source = candidate(NEEDED.replace("triton.language as tl", "apex").format("ImportError as e", "raise ImportError('needs apex') from e"))
    assert screen(source)[1] is None
    rejection = traced(source, tmp_path)["rejection"]
    assert isinstance(rejection, dict) and "needs apex" in rejection["reason"]


TANH = """
@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, libdevice.tanh(tl.load(x + i, mask=i < n).to(tl.float32)), mask=i < n)
"""
TRY = "try:\n    from triton.language.extra import libdevice\nexcept ImportError:\n    {}\n"


@pytest.mark.parametrize("fallback", ["libdevice = tl.math", "from triton.language import math as libdevice"])
def test_libdevice_may_have_the_math_of_triton_in_its_place(fallback: str, tmp_path: Path) -> None:
    source = "import triton.language as tl\n" + TRY.format(fallback) + TANH + body(ALLOCATE, LAUNCH, "return y")
    assert screen(source)[1] is None
    assert "libdevice.tanh" in extract(source).text
    assert "plans" in traced(source, tmp_path)


@pytest.mark.parametrize(
    "before",
    [
        TRY.format("libdevice = tl"),
        TRY.format("libdevice = math"),
        TRY.format("libdevice = torch"),
        TRY.format("libdevice = tl.math\n    libdevice = tl"),
        TRY.format("from triton.language import math as other") + "libdevice = other\n",
        TRY.format("pass") + "libdevice = tl.math\n",
        TRY.format("pass") + "finally:\n    libdevice = tl.math\n",
        TRY.format("pass") + "else:\n    libdevice = tl.math\n",
        TRY.format("libdevice = tl.math") + "else:\n    libdevice = tl.math\n",
        "libdevice = tl.math\n" + TRY.format("libdevice = tl.math"),
        TRY.format("libdevice = tl.math") + "libdevice = tl.math\n",
        "if False:\n    from triton.language.extra import libdevice\n"
        + TRY.replace("triton.language.extra", "no_such").format("libdevice = tl.math"),
        TRY.replace("libdevice\n", "libdevice as other\n").format("libdevice = tl.math") + "from triton.language.extra import libdevice\n",
        TRY.replace("ImportError", "ImportError as libdevice").format("libdevice = tl.math"),
        "try:\n    raise ImportError\n    from triton.language.extra import libdevice\nexcept ImportError:\n    libdevice = tl.math\n",
    ],
)  # fmt: skip
def test_nothing_else_may_have_that_place(before: str) -> None:
    source = "import math\nimport triton.language as tl\n" + before + TANH + body(ALLOCATE, LAUNCH, "return y")
    assert screen(source)[1] is not None


REASONS = {
    "import": ("import einops\n", "n = 1", "take it out, or put it and what uses it below `if __name__"),
    "pytest": ("import pytest\n", "n = 1", "take the tests out"),
    "star": ("from triton.language import *\n", "n = 1", "name each thing"),
    "fallback": ("", "if not x.is_cuda and x.dim() == 2: return torch.relu(x)", "take this fallback out"),
    "fallback_by_device": ("", "y = x if x.device.type == 'cuda' else x.relu()", "take this fallback out"),
    "decorator": ("@torch.compile\ndef f(x):\n    return x\n", "n = 1", "take it off"),
    "parameter": ("", "plain = isinstance(x, torch.nn.Parameter)", "`run` is given its tensors"),
    "check": ("", "torch._check(x.dim() == 2)", "write `if not ...: raise"),
    "assert of torch": ("", "torch._assert(x.dim() == 2, 'a matrix')", "write `if not ...: raise"),
    "private": ("class A:\n    _N = 1\n", "n = A._N", "give it a name without `_`"),
    "private of torch": ("", "n = x._base", "use public attributes of tensors"),
    "kernel object": ("", "n = copy.best_config", "only launch kernels"),
    "class": ("", "n = x.__class__", "type(x) =="),
    "environment": ("import os\nN = os.environ.get('N')\n", "n = 1", "`os.environ.get` has no place at the top level"),
    "test_called": ("def test():\n    torch.randn(4)\ntest()\n", "n = 1", "`test` is called at the top level"),
    "test_class": ("import unittest\nclass T(unittest.TestCase):\n    pass\n", "n = 1", "holds tests"),
    "message": ("", "text = f'{x}'", "write a message in the `raise` or `assert` itself"),
}


@pytest.mark.parametrize("name", REASONS)
def test_reasons_say_what_to_do(name: str) -> None:
    before, line, says = REASONS[name]
    _, rejection = screen(candidate(before, line))
    assert rejection is not None and says in rejection.reason, rejection


@pytest.mark.parametrize("line", ["if x.is_cuda: y = torch.relu(x)", "if x.dim() == 2: return torch.relu(x)", "torch.relu(x)"])
def test_only_a_fallback_is_called_one(line: str) -> None:
    _, rejection = screen(candidate("", line))
    assert rejection is not None and rejection.guard == "torch_compute" and "fallback" not in rejection.reason


@pytest.mark.parametrize("bound", ["run = copy\n", "run = lambda x: x\n"])
def test_run_is_to_be_written_as_a_function(bound: str) -> None:
    _, rejection = screen(COPY + bound)
    assert rejection is not None and "write `def run(...):`" in rejection.reason
