"""Imports that nothing in `run` needs, and what little else real files bring along: they pass, and
nothing comes of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from referee.reading.kernels import extract
from referee.stages.screen import screen
from referee.target import Target
from referee.tracing.cell_shape import CellShape
from referee.tracing.tracer import trace_source
from tests.referee.trace.bad import ALLOCATE, COPY, LAUNCH, body
from tests.referee.trace.good import rows

CELL = rows("x", shape=(3, 100))
DATA = "import dataclasses, os, sys, time\nfrom dataclasses import dataclass, field\n"


def candidate(before: str = "", *lines: str) -> str:
    """A candidate that is right, with these definitions and these lines in `run`."""
    return COPY + body(*lines, ALLOCATE, LAUNCH, "return y", before=before)


def traced(source: str, tmp_path: Path) -> dict[str, object]:
    return trace_source(
        source,
        str(tmp_path / "candidate.py"),
        Target(),
        [CellShape(CELL.inputs, len(CELL.outputs))],
    )


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
    "in_a_test": (
        "import random\n\ndef test_run():\n    run(torch.randn(random.randint(1, 9)))\n",
        (),
    ),
    "categories": (
        "import warnings\n",
        tuple(
            f"warnings.warn('small', {name})"
            for name in (
                "RuntimeWarning",
                "DeprecationWarning",
                "FutureWarning",
                "PendingDeprecationWarning",
            )
        ),
    ),
    "maxsize": ("import sys\n", ("assert x.numel() < sys.maxsize",)),
    "error": (
        'class E(ValueError):\n    """Too large."""\n\nclass F(E):\n    pass\n',
        ("if x.numel() < 0:", "    raise F('none')"),
    ),
    "field": (
        DATA + "@dataclass(frozen=True)\nclass A:\n"
        "    n: int = field(default=1, repr=False)\n    sizes: list = field(default_factory=list)\n",
        ("n = A().n",),
    ),
    "field_called": (
        DATA + "@dataclasses.dataclass\nclass A:\n    n: int = dataclasses.field(default=1)\n",
        ("n = A().n",),
    ),
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


GC = "from gc import get_objects as {}\n"
TRIED = "try:\n    " + GC + "except ImportError:\n    {}\n"
# Of a name that is imported, and something else where that fails: what stands at the top level, and
# a line of `run`.


NEEDED = "try:\n    import triton.language as tl\nexcept {}:\n    {}\n"
REWORDED = {
    "plain": ("ImportError", "raise ImportError('needs Triton')"),
    "another error": ("(ImportError, AttributeError)", "raise RuntimeError"),
    "what was caught": ("ImportError as e", "raise ImportError(f'needs Triton: {e!r}') from e"),
    "from nothing": ("ImportError as e", "raise ModuleNotFoundError(e) from None"),
    "as it is": ("ImportError", "raise"),
    "after a constant": ("ImportError", "HAS = False\n    raise"),
}


@pytest.mark.parametrize("name", REWORDED)
def test_an_import_that_is_needed_may_say_so(name: str, tmp_path: Path) -> None:
    source = candidate(NEEDED.format(*REWORDED[name]))
    assert screen(source)[1] is None
    assert "plans" in traced(source, tmp_path)


def test_what_is_needed_and_missing_is_told(tmp_path: Path) -> None:
    source = candidate(
        NEEDED.replace("triton.language as tl", "apex").format(
            "ImportError as e", "raise ImportError('needs apex') from e"
        )
    )
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


@pytest.mark.parametrize(
    "fallback", ["libdevice = tl.math", "from triton.language import math as libdevice"]
)
def test_libdevice_may_have_the_math_of_triton_in_its_place(fallback: str, tmp_path: Path) -> None:
    source = (
        "import triton.language as tl\n"
        + TRY.format(fallback)
        + TANH
        + body(ALLOCATE, LAUNCH, "return y")
    )
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
    source = (
        "import math\nimport triton.language as tl\n"
        + before
        + TANH
        + body(ALLOCATE, LAUNCH, "return y")
    )
    assert screen(source)[1] is not None


@pytest.mark.parametrize("bound", ["run = copy\n", "run = lambda x: x\n"])
def test_run_is_to_be_written_as_a_function(bound: str) -> None:
    _, rejection = screen(COPY + bound)
    assert rejection is not None and "write `def run(...):`" in rejection.reason
