"""Duplicates: other names make the same kernel, another number makes another kernel."""

from __future__ import annotations

import pytest

from kmint_tui.smith.canonical import canonical

KERNEL = """@triton.jit
def _k(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + row * N + cols, tl.load(x_ptr + row * N + cols, mask=cols < N))


def run(x):
    y = torch.empty_like(x)
    _k[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024, num_warps=4)
    return y
"""
TUNED = """@triton.autotune(configs=[triton.Config({'BLOCK': 128})], key=['N'])
@triton.jit
def _k(x_ptr, N, BLOCK: tl.constexpr):
    pass

def run(x):
    _k[lambda meta: (triton.cdiv(x.numel(), meta['BLOCK']),)](x, x.numel())
    return x
"""

SAME = {
    "kernel name": KERNEL.replace("_k", "_copy_kernel"),
    "local": KERNEL.replace("row", "pid"),
    "parameter": KERNEL.replace("x_ptr", "source").replace("y_ptr", "target"),
    "constexpr with its keyword": KERNEL.replace("BLOCK", "SIZE"),
    "same name in two scopes": KERNEL.replace("cols", "y"),
    "comment": KERNEL.replace("    row =", "    # one program a row\n    row ="),
    "docstring": KERNEL.replace("def run(x):\n", 'def run(x):\n    """Copy."""\n'),
    "layout": KERNEL.replace(", ", ",  ").replace("\n\n\n", "\n\n"),
    "annotations of run": KERNEL.replace(
        "def run(x):", "def run(x: torch.Tensor) -> torch.Tensor:"
    ),
    "argument of run": KERNEL.replace("run(x)", "run(inp)")
    .replace("(x)", "(inp)")
    .replace("x.shape", "inp.shape")
    .replace("](x", "](inp"),
    "number spelt otherwise": KERNEL.replace("1024", "1_024"),
}
OTHER = {
    "block": KERNEL.replace("1024", "512"),
    "warps": KERNEL.replace("num_warps=4", "num_warps=8"),
    "operator": KERNEL.replace("cols < N", "cols <= N"),
    "argument order": KERNEL.replace("(x, y,", "(y, x,"),
    "attribute": KERNEL.replace("empty_like", "zeros_like"),
    "float for integer": KERNEL.replace("tl.arange(0,", "tl.arange(0.0,"),
    "entry point": KERNEL.replace("def run", "def ran"),
    "swapped pointers": KERNEL.replace("tl.store(y_ptr", "tl.store(x_ptr"),
    "not Python": KERNEL + "(",
}


@pytest.mark.parametrize("name", SAME)
def test_equal_but_for_names_and_layout(name: str) -> None:
    assert SAME[name] != KERNEL
    assert canonical(SAME[name]) == canonical(KERNEL)


@pytest.mark.parametrize("name", OTHER)
def test_different_kernels_stay_different(name: str) -> None:
    assert canonical(OTHER[name]) != canonical(KERNEL)


def test_autotune_strings_follow_their_parameter() -> None:
    assert canonical(TUNED.replace("BLOCK", "SIZE")) == canonical(TUNED)
    assert canonical(TUNED.replace("meta['BLOCK']", "meta['N']")) != canonical(TUNED)
    assert canonical(TUNED.replace("key=['N']", "key=['x_ptr']")) != canonical(TUNED)


def test_text_that_is_not_python_is_compared_by_words() -> None:
    assert canonical("not  a\nkernel (") == canonical("not a kernel (")
    assert canonical("not a kernel (") != canonical("not a kernel ((")
    assert canonical("") == canonical("# only a comment")
    assert len(canonical("\ud800(")) == 32
