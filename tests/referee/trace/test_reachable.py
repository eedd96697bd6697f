"""Methods that a library calls by their names are looked into, though nothing in the file names them."""

from __future__ import annotations

import pytest

from referee.reading.screen import screen
from tests.referee.trace.bad import ALLOCATE, COPY, LAUNCH, body

FOREIGN = "        import sys\n        return sys.modules\n"
ENUM = "import enum\n"
MODULE = "class R(torch.nn.Module):\n"
CALLED = {
    "a missing member": (ENUM + "class R(enum.Enum):\n    A = 1\n    @classmethod\n    def _missing_(cls, value):\n" + FOREIGN, "R(1)"),
    "a next value": (
        ENUM + "class R(enum.Enum):\n    @staticmethod\n    def _generate_next_value_(*given):\n" + FOREIGN + "    A = enum.auto()\n",
        "R.A",
    ),
    "a module's call": (MODULE + "    def _call_impl(self, n):\n" + FOREIGN, "R()(1)"),
    "what moves it": (MODULE + "    def _apply(self, fn, recurse=True):\n" + FOREIGN, "R().half()"),
    "without a line": (MODULE + "    def named_parameters(self, *given):\n" + FOREIGN, "list(R().parameters())"),
    "in a class beside it": ("class B:\n    def _call_impl(self, n):\n" + FOREIGN + "class R(B, torch.nn.Module):\n    pass\n", "R()(1)"),
    "in one that inherits": (
        "class B(torch.nn.Module):\n    pass\nclass R(B):\n    def _call_impl(self, n):\n" + FOREIGN,
        "R()(1)",
    ),
    "a text that calls": (MODULE + "    def extra_repr(self):\n" + FOREIGN, "R()"),
    "what a text asks for": (
        MODULE + "    def extra_repr(self):\n        return f'{self.rows}'\n    @property\n    def rows(self):\n" + FOREIGN,
        "R()",
    ),
}
NOT_CALLED = {
    "a helper of a plain class": ("class R:\n    def _reference(self, x):\n        return x.softmax(-1)\n", "R()"),
    "a public one": (MODULE + "    def reference(self, x):\n        return x.softmax(-1)\n", "R()"),
    "new parameters": (MODULE + "    def reset_parameters(self):\n        torch.nn.init.ones_(self.weight)\n", "R()"),
    "a text": (MODULE + "    def extra_repr(self):\n        '''Rows.'''\n        return f'rows={self.rows}, eps={self.eps}'\n", "R()"),
    "an exported reference": ("__all__ = ['reference', 'run']\ndef reference(x):\n    return x.softmax(-1)\n", "1"),
    "a provider of a benchmark": (
        "def reference(x):\n    return x.softmax(-1)\n"
        "@triton.testing.perf_report(triton.testing.Benchmark(x_names=['N'], line_vals=['reference'], args={'way': 'reference'}))\n"
        "def bench(N, way):\n    return reference(torch.randn(N))\n",
        "1",
    ),
    "benchmarks in a list": (
        "from triton.testing import Benchmark\nCONFIGS = [Benchmark(x_names=['N'], line_vals=['reference'])]\n"
        "def reference(x):\n    return x.softmax(-1)\n",
        "1",
    ),
    "a gradient": (
        "class R(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return 1\n"
        "    @staticmethod\n    def backward(ctx, grad):\n        return grad.exp()\n",
        "R.apply(x)",
    ),
}


@pytest.mark.parametrize("name", CALLED)
def test_what_a_library_calls_is_looked_into(name: str) -> None:
    before, use = CALLED[name]
    _, rejection = screen(COPY + body(f"n = {use}", ALLOCATE, LAUNCH, "return y", before=before))
    assert rejection is not None and "sys.modules" in rejection.reason, rejection


@pytest.mark.parametrize(
    "before",
    [
        "NAMES = ['reference']\n",
        "__all__ = ['run', reference]\n",
        "@triton.testing.perf_report(triton.testing.Benchmark(x_names=['N'], line_vals=[reference]))\ndef bench(N):\n    return N\n",
    ],
)
def test_what_else_names_a_function_counts(before: str) -> None:
    reference = "def reference(x):\n    import sys\n    return sys.modules\n"
    _, rejection = screen(COPY + body(ALLOCATE, LAUNCH, "return y", before=reference + before))
    assert rejection is not None and "sys.modules" in rejection.reason, rejection


@pytest.mark.parametrize("name", NOT_CALLED)
def test_what_nothing_calls_only_stands_there(name: str) -> None:
    before, use = NOT_CALLED[name]
    assert screen(COPY + body(f"n = {use}", ALLOCATE, LAUNCH, "return y", before=before))[1] is None
