"""Cutting the clean kernel module out of candidates: what survives, and what is refused, for any text."""

from __future__ import annotations

import ast
import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.reading.kernels import HEADER, KernelError, Parameter, extract
from referee.reading.source import MAX_BYTES
from tests.referee.trace.good import GOOD


def kernel(*lines: str, parameters: str = "x, n, BLOCK: tl.constexpr", before: str = "") -> str:
    """A file with one kernel `k` of these body lines."""
    body = "\n".join(f"    {line}" for line in lines)
    return f"{before}\n@triton.jit\ndef k({parameters}):\n{body}\n\ndef run(x):\n    pass\n"


def clean_body(source: str, name: str = "k") -> list[str]:
    """The lines of a kernel's body in the clean text."""
    tree = ast.parse(extract(source).text)
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    return [ast.unparse(statement) for statement in function.body]


@pytest.mark.parametrize("name", GOOD)
def test_good_candidates_are_cut_and_the_clean_text_is_stable(name: str) -> None:
    module = extract(GOOD[name].source)
    again = extract(module.text)
    assert (again.text, again.signatures) == (module.text, module.signatures)


@pytest.mark.parametrize("name", GOOD)
def test_the_clean_text_holds_imports_constants_and_kernels_only(name: str) -> None:
    tree = ast.parse(extract(GOOD[name].source).text)
    kinds = {type(node) for node in tree.body}
    assert kinds <= {ast.Import, ast.ImportFrom, ast.Assign, ast.FunctionDef}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert all(ast.unparse(node.decorator_list[0]).startswith("triton.jit") and len(node.decorator_list) == 1 for node in functions)
    assert not any(node.name == "run" for node in functions)


def test_host_code_docstrings_and_tuning_decorators_are_gone() -> None:
    text = extract(GOOD["heuristics"].source).text
    assert text == HEADER + "\n" + text.removeprefix(HEADER + "\n")
    assert "heuristics" not in text and "lambda" not in text and "def run" not in text
    assert "whole row at once" not in extract(GOOD["whole_row"].source).text


def test_what_keeps_the_order_stays() -> None:
    lines = ["a = tl.cat(n, n, can_reorder=False)", "b = tl.ravel(a, False)", "c = b.reshape(4, 4).ravel()"]
    assert clean_body(kernel(*lines)) == lines


def test_spellings_become_canonical() -> None:
    source = kernel(
        "a = T.load(x + T.arange(0, BLOCK))",
        "b = tanh(a) + ld.erf(a) + triton.language.exp(a) + tl.extra.cuda.libdevice.pow(a, a) + e2(a) + m.rsqrt(a)",
        "b = tl.maximum(b, 0.0, propagate_nan=T.PropagateNan.ALL)",
        "tl.store(x, b.to(F32))",
        before="import triton.language as T\nfrom triton.language.extra.libdevice import tanh\n"
        "import triton.language.extra.cuda.libdevice as ld\nimport triton.language.math as m\ne2 = tl.exp2\nF32 = tl.float32\n",
    )
    assert clean_body(source) == [
        "a = tl.load(x + tl.arange(0, BLOCK))",
        "b = libdevice.tanh(a) + libdevice.erf(a) + tl.exp(a) + libdevice.pow(a, a) + tl.exp2(a) + tl.math.rsqrt(a)",
        "b = tl.maximum(b, 0.0, propagate_nan=tl.PropagateNan.ALL)",
        "tl.store(x, b.to(tl.float32))",
    ]


ANNOTATIONS = {
    "x: Optional[torch.Tensor]": "x",
    "x: torch.Tensor | None": "x",
    "x: tl.pointer_type": "x",
    "x: tl.tensor": "x",
    "x: 'torch.Tensor'": "x: 'torch.Tensor'",
    "x: '*fp32'": "x: '*fp32'",
    "x: 'tl.constexpr'": "x: tl.constexpr",
    "x: int": "x: int",
    "x: tl.int64": "x: tl.int64",
    "x: tl.const": "x: tl.const",
}


@pytest.mark.parametrize("annotation", ANNOTATIONS)
def test_annotations_that_mean_nothing_to_triton_go(annotation: str) -> None:
    text = extract(f"@triton.jit\ndef k({annotation}):\n    pass\n").text
    assert f"def k({ANNOTATIONS[annotation]}):" in text


@pytest.mark.parametrize(
    "annotation", ["numpy.int32", "tl.pointer_type(tl.float32)", "f(x)", "'constexpr '", "my_constexpr", "torch.float32"]
)
def test_annotations_that_may_mean_something_are_refused(annotation: str) -> None:
    with pytest.raises(KernelError, match="annotation"):
        extract(f"@triton.jit\ndef k(x: {annotation}):\n    pass\n")


def test_what_does_nothing_in_a_normal_build_goes() -> None:
    body = "if n > 0:\n        assert n > 0, 'positive'\n    tl.device_assert(n > 0)\n    tl.static_print(n)\n    tl.store(x, n)"
    body += "\n    tl.static_assert(n > 0, f'{n}')"
    text = extract(f"@triton.jit\ndef k(x, n):\n    {body}\n").text
    assert text.endswith("tl.static_assert(n > 0)\n")
    assert "assert n > 0, " not in text and "device_assert" not in text and "static_print" not in text
    assert "if n > 0:\n        pass\n    tl.store(x, n)" in text


def test_a_kernel_may_be_decorated_by_calls() -> None:
    tuned = "k = triton.jit(k)\nk = triton.heuristics({'B': lambda a: 1})(k)\n"
    module = extract(f"def k(x, B: tl.constexpr):\n    tl.store(x, B)\n\n{tuned}def run(x):\n    k[(1,)](x)\n")
    assert module.kernels == ("k",) and "heuristics" not in module.text
    for other in ("j = triton.jit(k)\n", "k = triton.jit(k)\nk = 3\n", "k = wrap(k)\n"):
        with pytest.raises(KernelError):
            extract(f"def k(x):\n    pass\n\n{other}")


def test_a_kernels_class_may_be_asked_for_and_methods_may_bear_its_name() -> None:
    before = (
        "from triton import JITFunction, jit\nimport triton as T\ndef is_kernel(f: JITFunction):\n    return isinstance(f, T.JITFunction)\n"
    )
    methods = "class A:\n    def k(self):\n        return k\n"
    source = kernel("pass", before=before + methods).replace("@triton.jit", "@jit")
    assert extract(source).kernels == ("k",)


def test_constants_come_along_with_what_they_mention_in_order() -> None:
    source = kernel(
        "tl.store(x, C)",
        before='A = 2.0\nB = tl.constexpr(-A ** 2)\nUNUSED = [1]\nC = tl.constexpr(B * 3 + float("inf"))\n',
    )
    lines = [ast.unparse(node) for node in ast.parse(extract(source).text).body if isinstance(node, ast.Assign)]
    assert lines == ["A = 2.0", "B = tl.constexpr(-A ** 2)", "C = tl.constexpr(B * 3 + float('inf'))"]


def test_signatures_tell_constexprs_defaults_and_atomics() -> None:
    module = extract(
        "@triton.jit\ndef h(p):\n    tl.atomic_add(p, 1)\n"
        "@triton.jit\ndef k(x, n: int, w=None, B: tl.constexpr = 64, S: 'tl.constexpr' = 'a'):\n    h(x)\n"
        "@triton.jit\ndef q(x: torch.Tensor, n: tl.int64):\n    tl.store(x, n)\n"
    )
    k = module.signature("k")
    assert k is not None and k.parameters == (
        Parameter("x", False, False),
        Parameter("n", False, False),
        Parameter("w", False, True),
        Parameter("B", True, True),
        Parameter("S", True, True),
    )
    assert {signature.name: signature.atomic for signature in module.signatures} == {"h": True, "k": True, "q": False}
    assert "def q(x, n: tl.int64)" in module.text and "n: int" in module.text


REFUSED = {
    "inline_asm": (
        "kernel_vocabulary",
        "inline assembly",
        kernel('tl.inline_asm_elementwise("x", "=r", [], dtype=tl.int32, is_pure=True, pack=1)'),
    ),
    "view": ("kernel_vocabulary", "another order; use tl.reshape", kernel("a = tl.view(tl.load(x), [1])")),
    "view_of_a_value": ("kernel_vocabulary", "`.view` is not allowed", kernel("a = tl.load(x).view(1)")),
    "reordering_cat": ("kernel_vocabulary", "`cat` with `can_reorder`", kernel("a = tl.cat(n, n, can_reorder=True)")),
    "reordering_cat_by_place": ("kernel_vocabulary", "`cat` with `can_reorder`", kernel("a = cat(n, n, BLOCK)", before="cat = tl.cat")),
    "reordering_reshape": ("kernel_vocabulary", "`reshape` with `can_reorder`", kernel("a = n.reshape(4, can_reorder=BLOCK)")),
    "reordering_ravel": ("kernel_vocabulary", "`ravel` with `can_reorder`", kernel("a = tl.ravel(n, True)")),
    "reordering_ravel_of_a_value": ("kernel_vocabulary", "`ravel` with `can_reorder`", kernel("a = n.ravel(True)")),
    "device_print": ("kernel_vocabulary", "printing", kernel('tl.device_print("x", n)')),
    "print": ("kernel_name", "print", kernel("print(n)")),
    "clock": ("kernel_vocabulary", "libdevice", kernel("t = tl.extra.cuda.globaltimer()")),
    "descriptor": ("launch_feature", "descriptors", kernel("d = tl.make_tensor_descriptor(x, [1], [1], [1])")),
    "dunder": ("kernel_vocabulary", "__class__", kernel("a = n.__class__")),
    "private": ("kernel_vocabulary", "_semantic", kernel("a = n._semantic")),
    "private_of_module": ("kernel_vocabulary", "tl._aggregate", kernel("tl.core._aggregate(n)")),
    "module_in_module": (
        "kernel_vocabulary",
        "libdevice.core",
        kernel("libdevice.core.load(x)", before="from triton.language.extra import libdevice"),
    ),
    "pointer_cast": ("kernel_vocabulary", "arguments only", kernel("p = tl.pointer_type(tl.float32)")),
    "builtin": ("kernel_name", "`eval`", kernel('eval("1")')),
    "abs": ("kernel_name", "tl.abs", kernel("a = abs(n)")),
    "getattr": ("kernel_name", "`getattr`", kernel('getattr(n, "x")')),
    "import_builtin": ("kernel_name", "__import__", kernel('__import__("os")')),
    "torch": ("kernel_vocabulary", "torch", kernel("torch.exp(n)")),
    "plain_function": ("kernel_name", "decorate it", kernel("a = f(n)", before="def f(a):\n    return a\n")),
    "constexpr_function": (
        "kernel_name", "give its result to the kernel",
        kernel("a = f(BLOCK)", before="@triton.constexpr_function\ndef f(a):\n    return a // 2\n"),
    ),
    "undefined": ("kernel_name", "not defined", kernel("a = missing")),
    "plain_global": ("kernel_constant", "tl.constexpr(...)", kernel("a = SIZE", before="SIZE = 4")),
    "annotated_global": ("kernel_constant", "tl.constexpr(...)", kernel("a = SIZE", before="SIZE: tl.constexpr = 4")),
    "computed_global": ("kernel_constant", "literal", kernel("a = SIZE", before="SIZE = tl.constexpr([i for i in range(4)])")),
    "called_global": ("kernel_constant", "open", kernel("a = SIZE", before='SIZE = tl.constexpr(open("f"))')),
    "keyword_global": ("kernel_constant", "literal", kernel("a = SIZE", before="SIZE = tl.constexpr(value=4)")),
    "rebound_global": ("kernel_constant", "more than once", kernel("a = SIZE", before="SIZE = tl.constexpr(4)\nSIZE = tl.constexpr(5)")),
    "conditional_global": (
        "kernel_constant",
        "more than once",
        kernel("a = S", before="S = tl.constexpr(4)\nif True:\n    S = tl.constexpr(5)"),
    ),
    "global_statement": (
        "kernel_constant",
        "more than once",
        kernel("a = S", before="S = tl.constexpr(4)\ndef g():\n    global S\n    S = 3\n"),
    ),
    "cyclic_global": ("kernel_constant", "more than once", kernel("a = A", before="A = tl.constexpr(B)\nB = tl.constexpr(A)")),
    "rebound_module": ("kernel_constant", "more than once", kernel("a = tl.exp(n)", before="tl = torch")),
    "shadowed_module": ("kernel_vocabulary", "variable name", kernel("tl = n")),
    "shadowing_parameter": ("kernel_vocabulary", "variable name", kernel("a = n", parameters="libdevice, n")),
    "nested_function": ("kernel_syntax", "nested", kernel("def f():", "    pass")),
    "lambda": ("kernel_syntax", "helper", kernel("f = lambda a: a")),
    "comprehension": ("kernel_syntax", "ListComp", kernel("a = [i for i in range(3)]")),
    "fstring": ("kernel_syntax", "f-strings", kernel('a = f"{n}"')),
    "walrus": ("kernel_syntax", "NamedExpr", kernel("tl.store(x, (a := n))")),
    "starred": ("kernel_syntax", "Starred", kernel("tl.store(*n)")),
    "double_star": ("kernel_syntax", "**", kernel("tl.store(**n)")),
    "break": ("kernel_syntax", "break", kernel("for i in range(n):", "    break")),
    "try": ("kernel_syntax", "exceptions", kernel("try:", "    pass", "finally:", "    pass")),
    "with": ("kernel_syntax", "With", kernel("with n:", "    pass")),
    "import": ("kernel_syntax", "top of the file", kernel("import os")),
    "global": ("kernel_syntax", "Global", kernel("global z")),
    "delete": ("kernel_syntax", "Delete", kernel("del n")),
    "attribute_store": ("kernel_syntax", "names only", kernel("n.x = 1")),
    "item_store": ("kernel_syntax", "names only", kernel("n[0] = 1")),
    "chained_assignment": ("kernel_syntax", "one at a time", kernel("a = b = n")),
    "loop_over_list": ("kernel_syntax", "range", kernel("for i in [1, 2]:", "    pass")),
    "for_else": ("kernel_syntax", "no else", kernel("for i in range(n):", "    pass", "else:", "    pass")),
    "call_of_value": ("kernel_vocabulary", "is a value, not a function: call the helper by its name", kernel("n(1)")),
    "call_of_call": ("kernel_syntax", "named functions", kernel("tl.load(x)(1)")),
    "bytes": ("kernel_vocabulary", "literal", kernel("a = b'x'")),
    "complex": ("kernel_vocabulary", "literal", kernel("a = 1j")),
    "ellipsis": ("kernel_vocabulary", "literal", kernel("a = n[...]")),
    "huge_integer": ("kernel_vocabulary", "literal", kernel(f"a = {1 << 70}")),
    "long_string": ("kernel_vocabulary", "literal", kernel(f"a = '{'x' * 300}'")),
    "unknown_word": ("kernel_vocabulary", "libdevice.tanh", kernel("a = tl.math.tanh(n)")),
    "varargs": ("kernel_syntax", "plain parameters", kernel("pass", parameters="*x")),
    "annotation_call": ("kernel_syntax", "annotation", kernel("pass", parameters="x: print()")),
    "default_call": ("kernel_constant", "open", kernel("pass", parameters="x=open('f')")),
    "decorator": ("kernel_syntax", "decorator", "@print\n" + kernel("pass").lstrip()),
    "jit_not_last": ("kernel_syntax", "next to the function", "@triton.jit\n@triton.heuristics({})\ndef k(x):\n    pass\n"),
    "jit_hook": ("launch_feature", "repr", "@triton.jit(repr=lambda s: 'f')\ndef k(x):\n    pass\n"),
    "jit_metadata_of_a_call": ("launch_feature", "name of a function", "@triton.jit(launch_metadata=open('f'))\ndef k(x):\n    pass\n"),
    "jit_metadata_lambda": ("launch_feature", "name of a function", "@triton.jit(launch_metadata=lambda *a: {})\ndef k(x):\n    pass\n"),
    "jit_debug": ("launch_feature", "debug", "@triton.jit(debug=True)\ndef k(x):\n    pass\n"),
    "inner_kernel": ("kernel_syntax", "top level", "def run(x):\n    @triton.jit\n    def k(x):\n        pass\n"),
    "made_in_a_function": ("kernel_syntax", "top level", kernel("pass") + "\ndef make(f):\n    return triton.jit(f)\n"),
    "made_by_another_name": ("kernel_syntax", "top level", kernel("pass", before="j = triton.jit") + "\nb = j(run)\n"),
    "made_by_an_inner_import": ("kernel_syntax", "top level", kernel("pass") + "\ndef m(f):\n    from triton import jit as j\n    j(f)\n"),
    "made_by_a_map": ("kernel_syntax", "top level", kernel("pass") + "\nall = list(map(triton.jit, [run]))\n"),
    "made_by_its_class": ("kernel_syntax", "top level", kernel("pass") + "\nb = triton.JITFunction(run)\n"),
    "made_by_an_imported_class": (
        "kernel_syntax",
        "top level",
        kernel("pass", before="from triton.runtime import JITFunction as J") + "\nb = J(run)\n",
    ),
    "made_under_another_name": ("kernel_syntax", "top level", kernel("pass") + "\nb = triton.jit(k)\n"),
    "made_while_tuning": ("kernel_syntax", "top level", kernel("pass") + "\nb = triton.autotune([], key=[])(triton.jit(run))\n"),
    "made_by_an_asynchronous_function": ("kernel_syntax", "top level", kernel("pass") + "\n@triton.jit\nasync def b():\n    pass\n"),
    "inner_function_of_its_name": (
        "kernel_syntax",
        "rename",
        kernel("pass") + "\ndef m():\n    def k(x):\n        pass\n    return k\n",
    ),
    "twice": ("kernel_syntax", "twice", kernel("pass") + kernel("pass")),
    "no_kernel": ("no_kernel", "no @triton.jit", "def run(x):\n    return x\n"),
    "import_ctypes": ("imports", "`ctypes`", "import ctypes\n" + kernel("pass")),
    "import_star": ("imports", "torch.*", "from torch import *\n" + kernel("pass")),
    "import_gluon": ("imports", "triton.experimental", "from triton.experimental import gluon\n" + kernel("pass")),
    "import_relative": ("imports", ".referee", "from .referee import x\n" + kernel("pass")),
    "reserved_name": ("kernel_syntax", "reserved", "@triton.jit\ndef max(x):\n    pass\n"),
}


def test_what_describes_launches_is_no_part_of_a_kernel() -> None:
    described = "def describe(grid, kernel, args):\n    return {'name': kernel.name}\n" + kernel("pass").replace("jit", "jit(%s)")
    for options, kept in (("", "\n"), ("noinline=True, ", "(noinline=True)\n")):
        text = extract(described % f"{options}launch_metadata=describe").text
        assert f"@triton.jit{kept}def k" in text and "describe" not in text


@pytest.mark.parametrize("name", REFUSED)
def test_everything_else_is_refused_by_its_guard(name: str) -> None:
    guard, says, source = REFUSED[name]
    with pytest.raises(KernelError) as refused:
        extract(source)
    assert (refused.value.guard, says in str(refused.value)) == (guard, True), refused.value
    assert "\n" not in str(refused.value)


HOSTILE = {
    "empty": "",
    "nul": "a\0b",
    "surrogate": "a = '\ud800'",
    "surrogate_only": "\udcff",
    "too_long": "#" * (MAX_BYTES + 1),
    "open_brackets": "(" * 60000,
    "braces": "{" * 60000,
    "minus": "x = " + "-" * 60000 + "1",
    "sum": "x = " + "1+" * 20000 + "1",
    "attributes": "x = a" + ".b" * 20000,
    "calls": "x = a" + "()" * 20000,
    "subscripts": "x = a" + "[0]" * 15000,
    "conditions": "x = " + "1 if 1 else " * 4000 + "1",
    "indentation": "".join(" " * i + "if 1:\n" for i in range(300)),
    "digits": "x = " + "1" * 50000,
    "hexadecimal": "x = 0x" + "f" * 50000,
    "decorators": "@a\n" * 20000 + "def f(): pass",
    "parameters": "def f(" + ",".join(f"a{i}" for i in range(9000)) + "): pass",
    "elif": "if 1:\n pass\n" + "elif 1:\n pass\n" * 4000,
    "lambdas": "x = " + "lambda:" * 8000 + "1",
    "tabs": "if 1:\n\tpass\n        pass",
    "continuations": "\\\n" * 30000,
    "form_feed": "\f\f# coding: latin-1\n",
    "many_names": ";".join(f"a{i}=1" for i in range(9000)),
    "deep_kernel": kernel("a = " + "(" * 90 + "n" + ")" * 90, "b = " + "-" * 70 + "n"),
    "wide_kernel": kernel(*(f"a{i} = n + {i}" for i in range(3000))),
}


# Many times what any of them takes: the point is that nothing explodes, on however slow a machine.
MOST_CALLS = 5_000_000


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_gets_an_answer_after_little_work(name: str) -> None:
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        extract(HOSTILE[name])
    except KernelError as refused:
        assert str(refused)
    finally:
        sys.setprofile(None)
    assert calls < MOST_CALLS


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_cut_or_refused(text: str) -> None:
    try:
        extract(text)
    except KernelError:
        return


def test_mutated_candidates_are_cut_cleanly_or_refused() -> None:
    rng = random.Random(20250101)
    fragments = [
        "__class__",
        ".",
        "(",
        ")",
        "[",
        "]",
        ":",
        "\n",
        "    ",
        "@",
        "eval",
        "tl.",
        "import os",
        "lambda",
        "*",
        "'",
        '"',
        "=",
        "\\",
        "1e999",
        "9" * 25,
    ]
    sources = [good.source for good in GOOD.values()]
    survived = 0
    for _ in range(1500):
        text = rng.choice(sources)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice([rng.choice(fragments), ""]) + text[at + rng.randint(0, 3) :]
        try:
            module = extract(text)
        except KernelError:
            continue
        survived += 1
        assert extract(module.text).text == module.text
    assert survived > 100
