"""Kernels that are refused, each with its guard and the words of the reason."""

from __future__ import annotations

import pytest

from referee.reading.kernels import KernelError, extract
from tests.referee.trace.test_kernels import kernel

REFUSED = {
    "inline_asm": (
        "not_judged",
        "inline assembly",
        kernel('tl.inline_asm_elementwise("x", "=r", [], dtype=tl.int32, is_pure=True, pack=1)'),
    ),
    "view": (
        "not_judged",
        "another order; use tl.reshape",
        kernel("a = tl.view(tl.load(x), [1])"),
    ),
    "view_of_a_value": (
        "kernel_vocabulary",
        "`.view` is not allowed",
        kernel("a = tl.load(x).view(1)"),
    ),
    "reordering_cat": (
        "kernel_vocabulary",
        "`cat` with `can_reorder`",
        kernel("a = tl.cat(n, n, can_reorder=True)"),
    ),
    "reordering_cat_by_place": (
        "kernel_vocabulary",
        "`cat` with `can_reorder`",
        kernel("a = cat(n, n, BLOCK)", before="cat = tl.cat"),
    ),
    "reordering_reshape": (
        "kernel_vocabulary",
        "`reshape` with `can_reorder`",
        kernel("a = n.reshape(4, can_reorder=BLOCK)"),
    ),
    "reordering_ravel": (
        "kernel_vocabulary",
        "`ravel` with `can_reorder`",
        kernel("a = tl.ravel(n, True)"),
    ),
    "reordering_ravel_of_a_value": (
        "kernel_vocabulary",
        "`ravel` with `can_reorder`",
        kernel("a = n.ravel(True)"),
    ),
    "device_print": ("not_judged", "printing", kernel('tl.device_print("x", n)')),
    "print": ("kernel_name", "print", kernel("print(n)")),
    "clock": ("not_judged", "libdevice", kernel("t = tl.extra.cuda.globaltimer()")),
    "descriptor": (
        "not_judged",
        "descriptors",
        kernel("d = tl.make_tensor_descriptor(x, [1], [1], [1])"),
    ),
    "dunder": ("kernel_vocabulary", "__class__", kernel("a = n.__class__")),
    "private": ("kernel_vocabulary", "_semantic", kernel("a = n._semantic")),
    "private_of_module": ("kernel_vocabulary", "tl._aggregate", kernel("tl.core._aggregate(n)")),
    "module_in_module": (
        "kernel_vocabulary",
        "libdevice.core",
        kernel("libdevice.core.load(x)", before="from triton.language.extra import libdevice"),
    ),
    "pointer_cast": (
        "not_judged",
        "arguments only",
        kernel("p = tl.pointer_type(tl.float32)"),
    ),
    "builtin": ("kernel_name", "`eval`", kernel('eval("1")')),
    "abs": ("kernel_name", "tl.abs", kernel("a = abs(n)")),
    "getattr": ("kernel_name", "`getattr`", kernel('getattr(n, "x")')),
    "import_builtin": ("kernel_name", "__import__", kernel('__import__("os")')),
    "torch": ("kernel_vocabulary", "torch", kernel("torch.exp(n)")),
    "plain_function": (
        "kernel_name",
        "decorate it",
        kernel("a = f(n)", before="def f(a):\n    return a\n"),
    ),
    "constexpr_function": (
        "kernel_name",
        "give its result to the kernel",
        kernel("a = f(BLOCK)", before="@triton.constexpr_function\ndef f(a):\n    return a // 2\n"),
    ),
    "undefined": ("kernel_name", "not defined", kernel("a = missing")),
    "plain_global": ("kernel_constant", "tl.constexpr(...)", kernel("a = SIZE", before="SIZE = 4")),
    "annotated_global": (
        "kernel_constant",
        "tl.constexpr(...)",
        kernel("a = SIZE", before="SIZE: tl.constexpr = 4"),
    ),
    "computed_global": (
        "kernel_constant",
        "literal",
        kernel("a = SIZE", before="SIZE = tl.constexpr([i for i in range(4)])"),
    ),
    "called_global": (
        "kernel_constant",
        "open",
        kernel("a = SIZE", before='SIZE = tl.constexpr(open("f"))'),
    ),
    "keyword_global": (
        "kernel_constant",
        "literal",
        kernel("a = SIZE", before="SIZE = tl.constexpr(value=4)"),
    ),
    "rebound_global": (
        "kernel_constant",
        "more than once",
        kernel("a = SIZE", before="SIZE = tl.constexpr(4)\nSIZE = tl.constexpr(5)"),
    ),
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
    "cyclic_global": (
        "kernel_constant",
        "more than once",
        kernel("a = A", before="A = tl.constexpr(B)\nB = tl.constexpr(A)"),
    ),
    "rebound_module": (
        "kernel_constant",
        "more than once",
        kernel("a = tl.exp(n)", before="tl = torch"),
    ),
    "shadowed_module": ("kernel_vocabulary", "variable name", kernel("tl = n")),
    "shadowing_parameter": (
        "kernel_vocabulary",
        "variable name",
        kernel("a = n", parameters="libdevice, n"),
    ),
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
    "for_else": (
        "kernel_syntax",
        "no else",
        kernel("for i in range(n):", "    pass", "else:", "    pass"),
    ),
    "call_of_value": (
        "kernel_vocabulary",
        "is a value, not a function: call the helper by its name",
        kernel("n(1)"),
    ),
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
    "jit_not_last": (
        "kernel_syntax",
        "next to the function",
        "@triton.jit\n@triton.heuristics({})\ndef k(x):\n    pass\n",
    ),
    "jit_hook": (
        "launch_feature",
        "repr",
        "@triton.jit(repr=lambda s: 'f')\ndef k(x):\n    pass\n",
    ),
    "jit_debug": ("launch_feature", "debug", "@triton.jit(debug=True)\ndef k(x):\n    pass\n"),
    "inner_kernel": (
        "kernel_syntax",
        "top level",
        "def run(x):\n    @triton.jit\n    def k(x):\n        pass\n",
    ),
    "made_in_a_function": (
        "kernel_syntax",
        "top level",
        kernel("pass") + "\ndef make(f):\n    return triton.jit(f)\n",
    ),
    "made_by_another_name": (
        "kernel_syntax",
        "top level",
        kernel("pass", before="j = triton.jit") + "\nb = j(run)\n",
    ),
    "made_by_an_inner_import": (
        "kernel_syntax",
        "top level",
        kernel("pass") + "\ndef m(f):\n    from triton import jit as j\n    j(f)\n",
    ),
    "made_by_a_map": (
        "kernel_syntax",
        "top level",
        kernel("pass") + "\nall = list(map(triton.jit, [run]))\n",
    ),
    "made_by_its_class": (
        "kernel_syntax",
        "top level",
        kernel("pass") + "\nb = triton.JITFunction(run)\n",
    ),
    "made_by_an_imported_class": (
        "kernel_syntax",
        "top level",
        kernel("pass", before="from triton.runtime import JITFunction as J") + "\nb = J(run)\n",
    ),
    "made_under_another_name": (
        "kernel_syntax",
        "top level",
        kernel("pass") + "\nb = triton.jit(k)\n",
    ),
    "made_while_tuning": (
        "kernel_syntax",
        "top level",
        kernel("pass") + "\nb = triton.autotune([], key=[])(triton.jit(run))\n",
    ),
    "made_by_an_asynchronous_function": (
        "kernel_syntax",
        "top level",
        kernel("pass") + "\n@triton.jit\nasync def b():\n    pass\n",
    ),
    "inner_function_of_its_name": (
        "kernel_syntax",
        "rename",
        kernel("pass") + "\ndef m():\n    def k(x):\n        pass\n    return k\n",
    ),
    "twice": ("kernel_syntax", "twice", kernel("pass") + kernel("pass")),
    "no_kernel": ("no_kernel", "no @triton.jit", "def run(x):\n    return x\n"),
    "import_star": ("imports", "torch.*", "from torch import *\n" + kernel("pass")),
    "reserved_name": ("kernel_syntax", "reserved", "@triton.jit\ndef max(x):\n    pass\n"),
}


def test_what_describes_launches_is_no_part_of_a_kernel() -> None:
    described = "def describe(grid, kernel, args):\n    return {'name': kernel.name}\n" + kernel(
        "pass"
    ).replace("jit", "jit(%s)")
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
