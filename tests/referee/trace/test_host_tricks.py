"""Tricks of host code, each of which lies outside the allow-list, and host code that lies on it."""

from __future__ import annotations

import pytest

from referee.reading.host_reached import unvouched
from tests.referee.trace.bad import ALLOCATE, COPY, LAUNCH, body

TRICKS = """
def run(x):
    return torch.softmax(x, -1)
####
def run(x):
    return torch.compile(copy)(x)
####
def run(x):
    try:
        y = torch.empty_like(x)
    except Exception:
        pass
    return y
####
class A:
    def go(self, x):
        return x.softmax(-1)

def run(x):
    return A().go(x)
####
def run(x):
    f = torch.is_grad_enabled
    return x
####
def run(x):
    f = getattr(torch, 'is_grad_enabled')
    return x
####
COUNT = 0

def run(x):
    global COUNT
    COUNT = 1
    return x
####
def run(x):
    d = triton.runtime.driver.active
    d.set_device(0)
    return x
####
def run(x, cache={}):
    return x
####
def run(x):
    open("f")
    return x
####
def run(x):
    y = x._replace(a=1)
    return y
####
def run(x):
    tl = x
    known = hasattr(tl, 'grad_fn')
    return x
####
from enum import sys

def run(x):
    sys.flags
    return x
####
def run(x):
    torch.Tensor.mro()
    return x
####
import functools

def run(x):
    functools.wraps(run, updated=())(copy)
    return x
####
def unused(a=[eval('1')][0]):
    pass

def run(x):
    return x
####
def d(f):
    f()
    return f
@d
def unused():
    eval('1')

def run(x):
    return x
####
def run(x):
    torch._C.x
    return x
####
def run(x):
    return torch.ops.aten.exp(x)
####
def run(x):
    return tl.exp(x)
####
class M(torch.nn.Module):
    pass

def run(x):
    return M().eval()(x)
####
def run(x):
    import torch.nn.functional as F
    return F.gelu(x)
####
def run(x):
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y

if __name__ == "__main__" or True:
    import os
    print(os)
####
import enum
E = enum.Enum("E", {"__exit__": max, "A": 1})

def run(x):
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
####
class A:
    def f(self, a=(__module__ := "torch")):
        pass

def run(x):
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
####
from typing import Generic
class A(Generic[eval('1')]):
    pass

def run(x):
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
####
def run(x):
    n = x.data_ptr() % 16
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
####
def run(x):
    if x.is_cuda: return torch.relu(x)
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
####
def run(x):
    if x.is_cuda: z = x
    z = torch.relu(x)
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
####
def run(x):
    x = torch.empty(1)
    if not x.is_cuda: return torch.relu(x)
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
####
def slow(z):
    if not z.is_cuda: return torch.relu(z)

def run(x):
    slow(x)
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
####
def run(x):
    if not x.is_cuda: return torch.relu(x) * x.item()
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
####
def run(x):
    if not x.is_cuda: return torch.bernoulli(x)
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
####
def run(x):
    if not x.is_cuda:
        class A: pass
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
####
import collections, logging
logger = logging.getLogger(__name__)

def run(x):
    d, n = collections.defaultdict(int), x.dim()
    logger.log(20, '%(rows)s', d)
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
####
import collections, logging
logger = logging.getLogger(__name__)

def run(x):
    d, n = collections.defaultdict(int), x.dim()
    getattr(logger, 'info')('%(rows)s', d)
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
####
import random as r

def run(x):
    n = r.getrandbits(1)
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
####
import random
def f():
    return random.random()

def run(x):
    n = f()
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
####
import types
class A(types.SimpleNamespace):
    pass

def run(x):
    n = A()
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
####
from torch.utils import data

def run(x):
    n = data.sys
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
####
import sys

def run(x):
    n = sys.maxunicode
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
####
ValueError = torch.Tensor
class E(ValueError):
    pass

def run(x):
    n = 1
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
""".split("####\n")

STATEMENTS = {
    "identity": "if x is y: pass",
    "a method as a value": "if x.view == y.view: pass",
    "a text of a value": "if f'{x.device}' == 'cuda:0': pass",
    "a formatted text": "if '%s' % x.device == 'cuda:0': pass",
    "a lambda as a value": "f = lambda: 0\n    if f: pass",
    "a position in a list": "if [x, y].index(y): pass",
    "members that are not constants": "if x in [y]: pass",
    "an assertion that writes": "assert x.copy_(y) is not None",
    "an assertion that launches": "assert copy[(1,)](x, y, 1, BLOCK=1) is None",
    "an assertion that calls the file": "assert helper(x)",
    "a list of the file that is changed": "SIZES[0] = 3",
    "a list of the file under another name": "other = SIZES\n    other[0] = 3",
    "a list within a list": "other = NESTED[0]\n    other[0] = 3",
    "a name with two values": "if FLAG: pass",
}
PLAIN = {
    "a list that is read": "for size in SIZES: pass",
    "a dict of dtypes": "kind = KINDS[x.dtype]",
    "a member of a list": "assert x.shape[0] in SIZES, f'bad {x.shape}'",
    "none": "if x is None: pass",
    "a grid": "grid = lambda meta: (3,)\n    copy[grid](x, y, 1, BLOCK=1)",
    "an error": "if x.dim() > 9: raise ValueError(f'not {x.dim()} of {x.dtype}')",
    "sizes": "n = max(SIZES) + len(SIZES)",
}
TOP = """
SIZES = [1, 2]
NESTED = [[1], [2]]
KINDS = {torch.float16: 1, torch.float32: 2}
try:
    import apex
    FLAG = True
except ImportError:
    FLAG = False
def helper(x):
    return x
"""
AT_IMPORT = [
    "A: print(1) = 1\n",
    "def helper(x: print(1)):\n    return x\n",
    "try:\n    import math\n    torch.empty = print\nexcept ImportError:\n    pass\n",
    "try:\n    import math\nexcept ImportError:\n    print(1)\n",
    "if print(1):\n    import math\n",
    "if (n := 3):\n    import math\n",
]


def run(statement: str) -> str:
    """A file whose `run` has this statement."""
    return COPY + TOP + body(ALLOCATE, statement, LAUNCH, "return y")


@pytest.mark.parametrize("trick", TRICKS)
def test_every_trick_is_named(trick: str) -> None:
    assert unvouched(COPY + "\n" + trick)


@pytest.mark.parametrize("name", STATEMENTS)
def test_code_that_the_trace_does_not_watch_is_named(name: str) -> None:
    assert unvouched(run(STATEMENTS[name]))


@pytest.mark.parametrize("name", PLAIN)
def test_plain_host_code_is_vouched_for(name: str) -> None:
    assert unvouched(run(PLAIN[name])) == ()


@pytest.mark.parametrize("before", AT_IMPORT)
def test_code_that_runs_at_import_is_named(before: str) -> None:
    assert unvouched(before + run("pass"))
