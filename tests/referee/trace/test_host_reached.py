"""Which host code a verdict does not vouch for, and which does not count because nothing of it
runs.
"""

from __future__ import annotations

import pytest

from referee.reading.host_reached import reservation, unvouched

KERNEL = """
@triton.jit
def _copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


def launch(x):
    y = torch.empty_like(x)
    _copy[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y

"""
RUN = "\ndef run(x):\n    return launch(x)\n"

UNREACHED = {
    "an import that nothing uses": ("from einops import rearrange", RUN),
    "a helper that computes": ("def reference(x):\n    return torch.softmax(x, -1)", RUN),
    "a decorated function": ("@torch.compile\ndef reference(x):\n    return x * 2", RUN),
    "an operator that is registered": (
        '@torch.library.custom_op("a::b", mutates_args=())\ndef op(x):\n    return launch(x)',
        RUN,
    ),
    "a layer": (
        "class Layer(torch.nn.Module):\n    def forward(self, x):\n        return x.sum()",
        RUN,
    ),
    "a test": ('if __name__ == "__main__":\n    print(launch(torch.ones(3)))', RUN),
    "configurations": (
        "configs = [triton.Config({'B': 2 ** n}, num_warps=4) for n in range(4, 8)]",
        RUN,
    ),
}
REACHED = {
    "a cached helper": (
        "import functools\n@functools.lru_cache\ndef width(n):\n    return n",
        RUN.replace("(x)\n", "(x, width(3))\n", 1),
    ),
    "a library": (
        "from einops import rearrange",
        "\ndef run(x):\n    return launch(rearrange(x, 'a b -> b a'))\n",
    ),
    "a class": (
        "class F:\n    def apply(self, x):\n        return launch(x)",
        "\ndef run(x):\n    return F().apply(x)\n",
    ),
    "a decorator of the file": (
        "def deco(f):\n    return print(f)\n@deco\ndef helper(x):\n    return x",
        RUN,
    ),
    "a call at import": ("print(3)", RUN),
    "a method that Python calls at import": (
        "class A:\n    def __init_subclass__(cls):\n        print(cls)\nclass B(A):\n    pass",
        RUN,
    ),
    "a class body that runs": ("class A:\n    torch.empty = print", RUN),
    "a default that is made": ("def helper(x=print(3)):\n    return x", RUN),
    "a word with another meaning": (
        "from evil import length as len",
        "\ndef run(x):\n    return launch(x) if len(x.shape) else x\n",
    ),
    "a value kept": ("BEFORE = [0]", "\ndef run(x):\n    BEFORE.append(1)\n    return launch(x)\n"),
}


@pytest.mark.parametrize("name", UNREACHED)
def test_what_the_call_does_not_reach_does_not_count(name: str) -> None:
    before, run = UNREACHED[name]
    assert (
        unvouched("import torch, triton\nimport triton.language as tl\n" + before + KERNEL + run)
        == ()
    )


@pytest.mark.parametrize("name", REACHED)
def test_what_runs_outside_the_list_is_named(name: str) -> None:
    before, run = REACHED[name]
    assert unvouched("import torch, triton\nimport triton.language as tl\n" + before + KERNEL + run)


def test_the_reservation_names_line_and_code() -> None:
    cached = "import functools\n@functools.lru_cache\ndef width(n):\n    return n\n"
    source = f"{cached}{KERNEL}\ndef run(x):\n    width(3)\n    return launch(x)\n"
    assert (
        reservation(unvouched(source)) == "host code not vouched for: line 3, @functools.lru_cache"
    )
    assert reservation(()) == ""


def test_a_long_list_is_cut() -> None:
    lines = "".join(f"    x.a{number}()\n" for number in range(5))
    assert reservation(
        unvouched(KERNEL + f"\ndef run(x):\n{lines}    return launch(x)\n")
    ).endswith(".a2 and 2 more")
