"""Host code that could tell a trace from a real call, in the screen's eyes."""

from __future__ import annotations

import pytest

from referee.screen import screen

KERNEL = """
@triton.jit
def _k(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


def run(x):
    %s
    out = torch.empty_like(x)
    _k[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""
REFUSED = {
    'text = f"{x}"': "formatted string",
    "text = str(x)": "`str`",
    "text = str([x])": "`str`",
    "texts = list(map(repr, [x]))": "`repr`",
    'text = "%s" % (x,)': "`%`",
    'text = "{}".format(x)': "`.format`",
    'assert __name__ != "candidate"': "`__name__`",
    "same = x.device is x.device": "`is`",
    "k = _k; seen = len(k.device_caches)": "`.device_caches`",
}
ALLOWED = (
    'assert x.is_cuda, f"{x.shape} is on {x.device}"',
    'if x.dim() != 2:\n        raise ValueError("%s has %d dimensions" % (type(x), x.dim()))',
    "name = str(x.dtype)",
    "half = x.dtype is torch.float16",
    "plain = x is None or isinstance(x, str)",
    "same = x.dtype is x.dtype",
    "odd = x.numel() % 2",
    'import warnings\n    warnings.warn(f"{x.shape} is small: {type(x)}")',
)


@pytest.mark.parametrize("line", REFUSED)
def test_what_tells_a_trace_from_a_call_is_refused(line: str) -> None:
    _, rejection = screen(KERNEL % line)
    assert rejection is not None and rejection.guard in ("vocabulary", "state") and REFUSED[line] in rejection.reason


@pytest.mark.parametrize("line", ALLOWED)
def test_messages_dtypes_and_numbers_pass(line: str) -> None:
    _, rejection = screen(KERNEL % line)
    assert rejection is None
