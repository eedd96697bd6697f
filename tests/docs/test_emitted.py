"""Kernel files out of texts as Inductor and Helion emit them. The texts here are written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import dedent

import pytest

from bench.emitted import Emitted, NotExtracted, kernel_file
from bench.emitted_helion import from_helion
from bench.emitted_inductor import Chosen, from_inductor
from referee.judge import Referee
from referee.reading.kernels import extract

DTYPES = ("float16", "bfloat16", "float32")

INDUCTOR = """
from torch._inductor.async_compile import AsyncCompile
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
async_compile = AsyncCompile()

triton_poi_fused_0 = async_compile.triton('triton_poi_fused_0', '''
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics

@triton_heuristics.pointwise(
    size_hints={'x': 1024},
    triton_meta={'signature': {'in_ptr0': '*fp16', 'out_ptr0': '*fp16', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_poi_fused_0'},
)
@triton.jit
def triton_poi_fused_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + xindex, xmask).to(tl.float32)
    tmp1 = tl.full([1], 0, tl.int32)
    tmp2 = triton_helpers.maximum(tmp1, tmp0)
    tl.store(out_ptr0 + xindex, tmp2 * tmp2, xmask)
''', device_str='cuda')

async_compile.wait(globals())

class Runner:
    def call(self, args):
        arg0_1, arg1_1, arg2_1 = args
        args.clear()
        s0 = arg0_1
        s1 = arg1_1
        assert_size_stride(arg2_1, (s0, s1), (s1, 1))
        with torch.cuda._DeviceGuard(0):
            torch.cuda.set_device(0)
            buf0 = empty_strided_cuda((s0, s1), (s1, 1), torch.DTYPE)
            triton_poi_fused_0_xnumel = s0*s1
            stream0 = get_raw_stream(0)
            triton_poi_fused_0.run(arg2_1, buf0, triton_poi_fused_0_xnumel, stream=stream0)
            del arg2_1
        return (buf0, )
"""
CHOSEN = {"triton_poi_fused_0": Chosen({"XBLOCK": 256}, 4, 1)}

HELION = """
from __future__ import annotations
import torch
import triton
import triton.language as tl
from helion.runtime import default_launcher as _default_launcher

_BLOCK_SIZE_0 = tl.constexpr(256)

@triton.jit
def _helion_relu2(x, out, count):
    at = tl.program_id(0) * _BLOCK_SIZE_0 + tl.arange(0, _BLOCK_SIZE_0)
    kept = tl.maximum(tl.cast(tl.load(x + at, at < count, other=0), tl.float32), 0.0)
    tl.store(out + at, tl.cast(kept * kept, tl.DTYPE), at < count)

def relu2(x: torch.Tensor, *, _launcher=_default_launcher) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    flat = x.contiguous()
    _BLOCK_SIZE_0 = 256
    _launcher(_helion_relu2, (triton.cdiv(x.numel(), _BLOCK_SIZE_0),), flat, out, x.numel(), num_warps=4, num_stages=1,
              launch_cooperative_grid=False)
    return out
"""


@pytest.fixture(scope="module")
def referee() -> Iterator[Referee]:
    """A referee for the CPU."""
    with Referee(mode="interpret") as opened:
        yield opened


def inductor(text: str = INDUCTOR, dtype: str = "float16") -> Emitted:
    return from_inductor(text.replace("DTYPE", dtype), ("x",), CHOSEN, dtype)


def test_a_text_of_inductor_becomes_a_kernel_that_is_right(referee: Referee) -> None:
    text = kernel_file("relu2", ("x",), {dtype: inductor(dtype=dtype) for dtype in DTYPES})
    assert "triton.cdiv(triton_poi_fused_0_xnumel, 256)" in text
    assert "XBLOCK=256, num_warps=4, num_stages=1" in text
    assert "do_not_specialize=['xnumel']" in text
    assert "triton_poi_fused_0_bfloat16" in extract(text).kernels
    found = referee.judge(text, "relu2", level="correct")
    assert found.verdict == "correct", found.reason


def test_a_text_of_helion_becomes_a_kernel_that_is_right(referee: Referee) -> None:
    texts = {dtype: from_helion(HELION.replace("DTYPE", dtype)) for dtype in DTYPES}
    text = kernel_file("relu2", ("x",), texts)
    assert "_launcher" not in text and "launch_cooperative_grid" not in text
    found = referee.judge(text, "relu2", level="correct")
    assert found.verdict == "correct", found.reason


def test_a_wrong_emitted_kernel_is_rejected(referee: Referee) -> None:
    wrong = HELION.replace("kept * kept", "kept")
    texts = {dtype: from_helion(wrong.replace("DTYPE", dtype)) for dtype in DTYPES}
    found = referee.judge(kernel_file("relu2", ("x",), texts), "relu2", level="correct")
    assert (found.verdict, found.guard) == ("rejected", "wrong_answer"), found.reason


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("'Grid1D'", "'CooperativeReductionGrid'", "the grid of"),
        ("(s1, 1))\n        with", "(2*s1, 1))\n        with", "not contiguous"),
        ("stream0 = get_raw_stream(0)", "buf1 = extern_kernels.mm(buf0, buf0)", "host code"),
        ("async_compile.triton(", "async_compile.cpp(", "no Triton kernel but one of cpp"),
        ("arg0_1, arg1_1, arg2_1 = args", "arg0_1, arg1_1, arg2_1, arg3_1 = args", "takes 2 tensors"),
        ("def call(", "def calls(", "no function `call`"),
    ],
)  # fmt: skip
def test_other_texts_of_inductor_are_refused(old: str, new: str, reason: str) -> None:
    assert old in INDUCTOR
    with pytest.raises(NotExtracted, match=reason):
        inductor(INDUCTOR.replace(old, new))


def test_a_launch_that_is_not_known_is_refused() -> None:
    for chosen in ({}, {"triton_poi_fused_0": Chosen({}, 4, 1)}):
        with pytest.raises(NotExtracted, match="the launch of"):
            from_inductor(INDUCTOR, ("x",), chosen, "float16")


def test_a_helper_that_torch_lacks_is_named() -> None:
    text = INDUCTOR.replace("triton_helpers.maximum", "triton_helpers.no_such_helper")
    with pytest.raises(NotExtracted, match="no helper triton_helpers.no_such_helper"):
        kernel_file("relu2", ("x",), {"float16": inductor(text)})


def test_other_statements_of_helion_are_refused() -> None:
    for more in ("print(1)", "def second(x):\n    return x"):
        with pytest.raises(NotExtracted):
            from_helion(HELION + dedent(more) + "\n")
