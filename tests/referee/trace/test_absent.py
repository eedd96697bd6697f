"""Files that import what is not installed here, or register operators: only what `run` comes to
counts.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from referee.ops.spec import TensorSpec
from referee.target import Target
from referee.tracing.absent import Absent
from referee.tracing.cell_shape import CellShape
from referee.tracing.tracer import trace_source

KERNEL = """
@triton.jit
def _copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


def launch(x):
    y = torch.empty_like(x)
    _copy[(triton.cdiv(x.numel(), 64), 1, 1, 1)](x, y, x.numel(), BLOCK=64)
    return y

"""
RUN = "def run(x):\n    return launch(x)\n"
GOOD = {
    "unused": "from no_such_module import rearrange\n" + KERNEL + RUN,
    "of the file's own package": "from .no_such_part import rearrange\n" + KERNEL + RUN,
    "compared at import": "from no_such_module.version import Version\nNEW = Version('3') >= Version('2')\n"
    + KERNEL
    + RUN,
    "decorates what nobody calls": "import no_such_module\n"
    + KERNEL
    + "@no_such_module.op('a')\ndef other(x):\n    return x\n"
    + RUN,
    "custom_op": KERNEL
    + '@torch.library.custom_op("kmint_test::one", mutates_args=())\ndef op(x: torch.Tensor) -> torch.Tensor:\n'
    "    return launch(x)\n@op.register_fake\ndef _(x):\n    return torch.softmax(x, 0)\ndef run(x):\n    return op(x)\n",
    "by its name in torch.ops": KERNEL
    + '@torch.library.custom_op("kmint_test::two", mutates_args=())\n'
    "def op(x: torch.Tensor) -> torch.Tensor:\n    return launch(x)\ndef run(x):\n    return torch.ops.kmint_test.two.default(x)\n",
    "triton_op": "from torch.library import triton_op, wrap_triton\n"
    + KERNEL.replace("_copy[", "wrap_triton(_copy)[")
    + '@triton_op("kmint_test::three", mutates_args={})\ndef op(x):\n    return launch(x)\ndef run(x):\n    return op(x)\n',
}
BAD = {
    "called": "from no_such_module import rearrange\n"
    + KERNEL
    + "def run(x):\n    return launch(rearrange(x))\n",
    "called, and caught": "from no_such_module import rearrange\n"
    + KERNEL
    + "def run(x):\n    try:\n        rearrange(x)\n    except Exception:\n        pass\n    return launch(x)\n",
    "decides": "from no_such_module import NEW\n"
    + KERNEL
    + "def run(x):\n    return launch(x) if NEW else x\n",
    "decides at import": "from no_such_module import NEW\nKIND = 1 if NEW else 2\n" + KERNEL + RUN,
    "asked for an object of its type": "from no_such_module import Kind\n"
    + KERNEL
    + "def run(x):\n    return x if isinstance(x, Kind) else launch(x)\n",
    "given to a kernel": "from no_such_module import NEW\n"
    + KERNEL
    + "def run(x, n=NEW):\n    _copy[(n,)](x, x, 1, BLOCK=64)\n    return x\n",
    "the referee's own": "from referee.ops import reference\n"
    + KERNEL
    + "def run(x):\n    return reference.x(launch(x))\n",
}


def traced(source: str, folder: Path) -> dict[str, Any]:
    cell = CellShape((TensorSpec("x", (3, 40), "float32", (40, 1), 0),), 1)
    return trace_source(source, str(folder / "candidate.py"), Target(), [cell])


@pytest.mark.parametrize("name", GOOD)
def test_only_what_run_reaches_counts(name: str, tmp_path: Path) -> None:
    found = traced(GOOD[name], tmp_path)
    assert [step["kernel"] for step in found["plans"][0]["steps"]] == ["_copy"], found


@pytest.mark.parametrize("name", BAD)
def test_a_missing_module_that_run_reaches_is_no_kernel_fault(name: str, tmp_path: Path) -> None:
    assert traced(BAD[name], tmp_path)["rejection"]["guard"] == "missing_module"


def test_a_gpu_kernel_takes_the_place_of_the_operator_function(tmp_path: Path) -> None:
    wrong = GOOD["custom_op"].replace("@op.register_fake\n", "@op.register_kernel('cuda')\n")
    assert traced(wrong, tmp_path)["rejection"]["guard"] == "torch_compute"


def test_what_a_try_does_without_is_not_needed() -> None:
    tree = ast.parse(
        "import torch\ntry:\n    import no_such_module\nexcept ImportError:\n    pass\n"
    )
    absent = Absent(tree)
    assert absent.names == set() and absent.tried == {"no_such_module"}
