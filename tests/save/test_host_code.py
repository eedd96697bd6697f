"""The limits of what may be saved: a saved file runs unsandboxed, so unknown code is refused."""

from __future__ import annotations

import pytest

from kmint_tui.save.host_code import NotSaveable, check
from kmint_tui.save.judged_part import build

KERNEL = """
@triton.jit
def _kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * N + cols, x / tl.sum(x, axis=0), mask=cols < N)
"""

GOOD = (
    KERNEL
    + """

# whole row in one block
def run(x):
    M, N = x.shape
    y = torch.empty_like(x)
    BLOCK = triton.next_power_of_2(N)
    _kernel[(M,)](x, y, N, BLOCK=BLOCK, num_warps=8 if BLOCK >= 4096 else 4)
    return y
"""
)


def test_an_ordinary_kernel_is_kept_whole() -> None:
    kept = check('"""Doc."""\nimport torch\nimport triton\nimport triton.language as tl\n' + GOOD)
    assert [argument.arg for argument in kept.run.args.args] == ["x"]
    assert kept.kernels.kernels == ("_kernel",)


@pytest.mark.parametrize(
    "body",
    [
        "if x.dim() != 2:\n        raise ValueError(f'two dimensions, not {x.dim()}')\n    M, N = x.shape",
        "x = x.contiguous().view(-1, x.shape[-1])\n    M, N = x.size(0), x.size(1)",
        "M, N = x.shape[0], x.shape[1]\n    assert N > 0, 'empty'",
        "M = x.numel() // x.stride(0)\n    N = max(1, int(x.shape[-1]))",
    ],
)
def test_ordinary_host_code_is_kept(body: str) -> None:
    check(GOOD.replace("M, N = x.shape", body))


def test_a_grid_function_and_a_device_guard_are_kept() -> None:
    launch = "with torch.cuda.device(x.device):\n        _kernel[lambda meta: (triton.cdiv(M, 1),)](x, y, N, BLOCK=BLOCK)\n"
    source = GOOD.replace(
        "_kernel[(M,)](x, y, N, BLOCK=BLOCK, num_warps=8 if BLOCK >= 4096 else 4)\n", launch
    )
    assert (
        "with torch.cuda.device(x.device)" in build(check(source), public="softmax", wrap=True).text
    )


@pytest.mark.parametrize(
    "line",
    [
        "print('hello')",
        "open('x', 'w')",
        "X = open('x')",
        "X = [].__class__",
        "X = torch.load",
        "X = torch.load('x')",
        "X = eval('1')",
        "__hidden__ = 1",
        "try:\n    open('x')\nexcept OSError:\n    pass",
        "if True:\n    open('x')",
        "for x in range(3): pass",
        "async def helper(x): return x",
        "import triton as torch",
        "@triton.jit\ndef k2(x_ptr, N=open('x')):\n    tl.store(x_ptr, 1)",
        "@triton.jit\ndef k2(x_ptr, N: open('x')):\n    tl.store(x_ptr, 1)",
        "@triton.jit(debug=open('x'))\ndef k2(x_ptr):\n    tl.store(x_ptr, 1)",
        "@triton.jit\ndef k2(x_ptr):\n    os.system('x')",
        "@triton.jit\ndef k2(x_ptr):\n    tl.core.builtins.open('x')",
    ],
)
def test_what_would_run_at_import_is_refused(line: str) -> None:
    with pytest.raises(NotSaveable):
        check(line + "\n" + GOOD)
    with pytest.raises(NotSaveable):
        check(GOOD + line + "\n")


UNUSED = [
    "import os",
    "from subprocess import run as go",
    "import torch.utils.cpp_extension",
    "class A: pass",
    "try:\n    import os\nexcept ImportError:\n    pass",
    "if triton.__version__ >= '3':\n    import os",
    "def helper(x=open('x')): return x",
    "def helper(x: open('x')): return x",
    "def helper(x) -> open('x'): return x",
    "@open\ndef helper(x): return x",
    "def helper(*x): return os.system(x)",
    "def test_run():\n    assert torch.allclose(run(open), torch.softmax(os, -1))",
    "pass",
]


@pytest.mark.parametrize("line", UNUSED)
def test_what_run_does_not_come_to_is_not_written(line: str) -> None:
    for source in (line + "\n" + GOOD, GOOD + line + "\n"):
        text = build(check(source), public="softmax", wrap=True).text
        assert text == build(check(GOOD), public="softmax", wrap=True).text


@pytest.mark.parametrize("line", UNUSED[4:9])
def test_what_run_comes_to_is_refused(line: str) -> None:
    with pytest.raises(NotSaveable):
        check(line + "\n" + GOOD.replace("    return y\n", "    return helper(y)\n"))
    with pytest.raises(NotSaveable):
        check(
            "def between(x): return helper(x)\n"
            + line
            + "\n"
            + GOOD.replace("    return y\n", "    return between(y)\n")
        )


def test_constants_bring_those_they_are_made_of() -> None:
    source = "import math\nSPARE = 2**10\nWIDE = SPARE * 4\nLOST = 3\n" + GOOD.replace(
        "BLOCK >= 4096", "BLOCK >= WIDE"
    )
    text = build(check(source), public="softmax", wrap=True).text
    assert text.startswith("_SPARE = 2 ** 10\n_WIDE = _SPARE * 4\n") and "LOST" not in text


def test_a_launch_option_that_is_off_is_kept() -> None:
    source = GOOD.replace("BLOCK=BLOCK, ", "BLOCK=BLOCK, launch_pdl=False, ")
    assert "launch_pdl=False" in build(check(source), public="softmax", wrap=False).candidate


def test_what_describes_launches_to_profilers_is_not_written() -> None:
    describe = "def describe(grid, kernel, args):\n    return {'name': f'{kernel.name}'}\n"
    source = describe + GOOD.replace("@triton.jit", "@triton.jit(launch_metadata=describe)")
    assert (
        build(check(source), public="softmax", wrap=True).text
        == build(check(GOOD), public="softmax", wrap=True).text
    )


def test_a_negative_default_is_kept() -> None:
    assert (
        "dim=-1"
        in build(
            check(GOOD.replace("def run(x)", "def run(x, dim=-1)")), public="softmax", wrap=True
        ).text
    )


@pytest.mark.parametrize(
    "statement",
    [
        "print(x)",
        "__import__('os').system('x')",
        "open('x', 'w').write('x')",
        "x.__class__.__base__.__subclasses__()",
        "getattr(x, 'data')",
        "torch.save(x, 'x')",
        "torch.ops.aten.relu(x)",
        "torch.hub.load('x')",
        "torch.softmax(x, -1)",
        "x.register_hook(lambda g: g)",
        "x.backward()",
        "x.tolist()",
        "x.data_ptr()",
        "triton.runtime.driver.active",
        "tl.load.__globals__",
        "global y",
        "y = [i for i in range(3)]",
        "import os",
        "y = (lambda: open('x'))()",
        "exec('1')",
        "eval('1')",
        "while True: pass",
        "try:\n        pass\n    except ValueError:\n        pass",
        "with open('x') as f: pass",
        "with torch.cuda.device(open('x')): pass",
        "raise SystemExit",
        "raise KeyError('x')",
        "del x",
        "yield x",
        "_kernel.run(x)",
        "_kernel.fn.__globals__",
        "y = _kernel",
        "torch = x",
        "wrap_triton = x",
        "_kernel = x",
        "len = x",
        "f'{open(1)}'",
        "y = {'a': open}",
        "x[open('x')]",
        "x.shape[__import__('os')]",
        "type(x).mro()",
        "vars()",
    ],
)
def test_what_would_run_in_a_call_is_refused(statement: str) -> None:
    with pytest.raises(NotSaveable):
        check(GOOD.replace("    return y\n", f"    {statement}\n    return y\n"))


def test_autotuned_kernels_are_refused_with_the_way_out() -> None:
    tuned = "@triton.autotune(configs=[triton.Config({'BLOCK': 1024})], key=['N'])" + GOOD
    with pytest.raises(NotSaveable) as refused:
        check(tuned)
    assert refused.value.fix


@pytest.mark.parametrize(
    "source",
    [
        "",
        "def run(x): return x\n",
        KERNEL,
        "def run(:\n",
        GOOD.replace("def run", "@triton.jit\ndef run"),
    ],
)
def test_what_is_no_kernel_file_is_refused(source: str) -> None:
    with pytest.raises(NotSaveable):
        check(source)
