"""A draft that is copied brings the imports it uses, each once, and keeps those that it has."""

from __future__ import annotations

import pytest

from kmint_tui.minting.standalone import standalone
from tests.save.conftest import source

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"


def test_a_kernel_without_imports_can_be_run_alone() -> None:
    text = standalone(source("row_rmsnorm"))
    assert text.startswith(HEAD) and text.endswith(source("row_rmsnorm"))
    names: dict[str, object] = {}
    exec(compile(text.replace("@triton.jit\n", ""), "draft", "exec"), names)
    assert {"torch", "triton", "tl", "run"} <= names.keys()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = tl.exp(1)\n", "import triton.language as tl\n\n\nx = tl.exp(1)\n"),
        ("import triton.language as tl\nx = tl.exp(1)\n", None),
        ("from triton import language as tl\nx = tl.exp(1)\n", None),
        (
            "import torch.nn as nn\nx = nn.a(math.pi)\n",
            "import math\n\n\nimport torch.nn as nn\nx = nn.a(math.pi)\n",
        ),
        ("def run(tl):\n    return tl\n", None),
        ("F = 3\nx = F\n", None),
        (
            "from __future__ import annotations\nx = torch.e\n",
            "from __future__ import annotations\n\nimport torch\n\n\nx = torch.e\n",
        ),
        ("def run(:\n", None),
        ("", None),
    ],
)
def test_only_what_is_used_and_lacking_is_added(text: str, expected: str | None) -> None:
    assert standalone(text) == (text if expected is None else expected)
