"""The screen reads names as Python does: what one scope binds says nothing of another."""

from __future__ import annotations

import ast

import pytest

from referee.reading.local_names import local_names
from referee.reading.screen import screen

KERNEL = """
@triton.jit
def _kernel(x, out, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(out + cols, tl.load(x + cols, mask=cols < n), mask=cols < n)

"""
RETURN = "    return torch.empty_like(x)\n"

REFUSED = {
    "bound by a comprehension": (KERNEL + "def run(x):\n    _ = [0 for eval in ()]\n    eval('1')\n" + RETURN, "`eval` is not allowed"),
    "its first iterable": (KERNEL + "def run(x):\n    _ = [eval for eval in eval('()')]\n" + RETURN, "`eval` is not allowed"),
    "bound by a lambda": (KERNEL + "def run(x):\n    f = lambda eval: 1\n    eval('1')\n" + RETURN, "`eval` is not allowed"),
    "bound in a function inside": (
        KERNEL + "def run(x):\n    def g(eval):\n        return eval\n    eval('1')\n" + RETURN,
        "`eval` is not allowed",
    ),
    "a default": (KERNEL + "def run(x):\n    def g(y=eval('1')):\n        eval = 1\n" + RETURN, "`eval` is not allowed"),
    "never bound at the top": (
        "for eval in ():\n    pass\nREAL = eval('1')\n" + KERNEL + "def run(x):\n" + RETURN,
        "`eval` is not allowed",
    ),
    "a class body": ("class A:\n    eval = eval('1')\n" + KERNEL + "def run(x):\n    A\n" + RETURN, "`eval` is not allowed"),
    "what else Python has": (
        KERNEL + "def run(x):\n    _ = [0 for __builtins__ in ()]\n    __builtins__['eval']\n" + RETURN,
        "`__builtins__` is Python's own",
    ),
    "a module's name": (
        "import sys\n" + KERNEL + "def run(x):\n    _ = [0 for sys in ()]\n    sys.argv\n" + RETURN,
        "`sys.argv` has no place in `run`",
    ),
    "two modules": (
        "import sys\n" + KERNEL + "def run(x):\n    def g():\n        import math as sys\n    sys.modules\n" + RETURN,
        "`sys` is imported here and means something else elsewhere",
    ),
    "an import and a variable": (
        "q = (i for i in ())\n" + KERNEL + "def run(x):\n    def g():\n        import math as q\n    q.gi_frame\n" + RETURN,
        "`q` is imported here and means something else elsewhere",
    ),
    "an alias and a variable": (
        "import math\nm = math\nfor m in (1,):\n    pass\n" + KERNEL + "def run(x):\n    m.gi_frame\n" + RETURN,
        "`m` is assigned more than once",
    ),
    "a module twice": ("a = b = torch\n" + KERNEL + "def run(x):\n    a.importlib\n" + RETURN, "`torch` is a module"),
    "a module as a value": (KERNEL + "def run(x):\n    m = torch\n    m.importlib\n" + RETURN, "`torch` is a module"),
    "a word that math does not have": ("import math\n" + KERNEL + "def run(x):\n    math.gi_frame\n" + RETURN, "`math.gi_frame` is not in"),
}
PASSES = {
    "parameters": "def run(input):\n    id, max = input.shape\n    return torch.empty_like(input)\n",
    "bound by := in a comprehension": "def run(x):\n    _ = [(hash := i) for i in (1,)]\n    hash\n" + RETURN,
    "seen from a function inside": "def run(x):\n    input = x\n    def g():\n        return [input for _ in (1,)]\n    g()\n" + RETURN,
    "aliases": "silu = torch.nn.functional.silu\nexp = tl.exp\nfull = torch.full_like\n\ndef run(x):\n    return full(x, 1.0)\n",
    "a container filled at import": "SIZES = {}\nfor n in (1, 2):\n    SIZES[n] = 2 * n\n\ndef run(x):\n    SIZES[1]\n" + RETURN,
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_name_is_what_its_own_scope_says(case: str) -> None:
    source, words = REFUSED[case]
    rejection = screen(source)[1]
    assert rejection is not None and words in rejection.reason, rejection


@pytest.mark.parametrize("case", PASSES)
def test_names_of_a_function_s_own_pass(case: str) -> None:
    assert screen(KERNEL + PASSES[case])[1] is None


def test_which_nodes_are_variables() -> None:
    text = "def f(a, *b, c=z, **d):\n    e = [g + h for g in i for h in g]\n    def j(k): return k, e, y\n    return lambda m: m + a\nb"
    tree = ast.parse(text)
    found = local_names(tree)
    named = {node.id: id(node) in found for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert named == {**dict.fromkeys("eghkma", True), **dict.fromkeys("ziyb", False)}
