"""Cutting the clean kernel module out of candidates: what survives, and what is refused, for any
text.
"""

from __future__ import annotations

import ast

import pytest

from referee.reading.kernels import HEADER, KernelError, Parameter, extract
from tests.referee.trace.good import GOOD


def kernel(*lines: str, parameters: str = "x, n, BLOCK: tl.constexpr", before: str = "") -> str:
    """A file with one kernel `k` of these body lines."""
    body = "\n".join(f"    {line}" for line in lines)
    return f"{before}\n@triton.jit\ndef k({parameters}):\n{body}\n\ndef run(x):\n    pass\n"


def clean_body(source: str, name: str = "k") -> list[str]:
    """The lines of a kernel's body in the clean text."""
    tree = ast.parse(extract(source).text)
    function = next(
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name
    )
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
    assert all(
        ast.unparse(node.decorator_list[0]).startswith("triton.jit")
        and len(node.decorator_list) == 1
        for node in functions
    )
    assert not any(node.name == "run" for node in functions)


def test_host_code_docstrings_and_tuning_decorators_are_gone() -> None:
    text = extract(GOOD["heuristics"].source).text
    assert text == HEADER + "\n" + text.removeprefix(HEADER + "\n")
    assert "heuristics" not in text and "lambda" not in text and "def run" not in text
    assert "whole row at once" not in extract(GOOD["whole_row"].source).text


def test_what_keeps_the_order_stays() -> None:
    lines = [
        "a = tl.cat(n, n, can_reorder=False)",
        "b = tl.ravel(a, False)",
        "c = b.reshape(4, 4).ravel()",
    ]
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


@pytest.mark.parametrize(
    ("version", "word", "instead"),
    [
        (
            "3.9.0",
            "tl.make_block_ptr(x, (n,), (1,), (0,), (16,), (0,))",
            "block pointers are gone; use tl.load and tl.store",
        ),
        ("3.10.0", "tl.advance(x, (1,))", "block pointers are gone; use tl.load and tl.store"),
        ("3.6.0", "tl.squeeze(x, 0)", "use tl.reshape"),
        ("3.6.0", "tl.unsqueeze(x, 0)", "use tl.expand_dims"),
    ],
)
def test_a_word_that_a_version_lacks_is_refused_with_the_version(
    version: str, word: str, instead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"@triton.jit\ndef k(x, n):\n    y = {word}\n    tl.store(x, y)\n"
    monkeypatch.setattr("referee.reading.kernel_vocabulary.triton_version", lambda: "3.8.0")
    extract(source)
    monkeypatch.setattr("referee.reading.kernel_vocabulary.triton_version", lambda: version)
    with pytest.raises(KernelError) as caught:
        extract(source)
    assert caught.value.guard == "kernel_vocabulary"
    assert f"triton {version} has no `{word.partition('(')[0]}`: {instead}" in str(caught.value)


@pytest.mark.parametrize(
    ("lacking", "having", "call", "reason"),
    [
        ("3.9.0", "3.8.0", "tl.load(x, boundary_check=(0,))", ("`tl.load`", "boundary_check")),
        ("3.9.0", "3.8.0", "tl.load(x, None, None, (0,), 'zero')", ("`tl.load`", "boundary_check")),
        ("3.10.0", "3.7.0", "tl.load(x, padding_option='zero')", ("`tl.load`", "padding_option")),
        ("3.9.0", "3.6.0", "tl.store(x, n, None, (0,))", ("`tl.store`", "boundary_check")),
        ("3.6.0", "3.7.0", "tl.cat(x, x, dim=0)", ("`tl.cat`", "dim")),
        ("3.7.0", "3.8.0", "tl.topk(x, 4, descending=False)", ("`tl.topk`", "descending")),
        ("3.8.0", "3.9.0", "tl.load(x).cumprod(0, dtype=tl.float32)", ("`cumprod`", "dtype")),
        ("3.8.0", "3.9.0", "tl.load(x).cumprod(0, False, tl.float32)", ("`cumprod`", "dtype")),
        ("3.6.0", "3.9.0", "tl.fdiv(x, x, False, True)", ("`tl.fdiv`", "approx")),
    ],
)
def test_an_argument_that_a_version_lacks_is_refused(
    lacking: str, having: str, call: str, reason: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"@triton.jit\ndef k(x, n):\n    y = {call}\n    tl.store(x, y)\n"
    monkeypatch.setattr("referee.reading.kernel_vocabulary.triton_version", lambda: having)
    extract(source)
    monkeypatch.setattr("referee.reading.kernel_vocabulary.triton_version", lambda: lacking)
    with pytest.raises(KernelError) as caught:
        extract(source)
    assert caught.value.guard == "kernel_vocabulary"
    assert f"in triton {lacking}, {reason[0]} has no argument `{reason[1]}`: " in str(caught.value)


@pytest.mark.parametrize(
    "word",
    ["tl.make_tensor_descriptor(x, (n,), (1,), (16,))", "tl.load_tensor_descriptor(x, (0,))"],
)
def test_tensor_descriptors_are_refused_whatever_the_version(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("3.6.0", "3.9.0"):
        monkeypatch.setattr(
            "referee.reading.kernel_vocabulary.triton_version", lambda version=version: version
        )
        with pytest.raises(KernelError, match=r"tensor descriptors .*use tl\.load"):
            extract(f"@triton.jit\ndef k(x, n):\n    y = {word}\n    tl.store(x, y)\n")


@pytest.mark.parametrize("annotation", ANNOTATIONS)
def test_annotations_that_mean_nothing_to_triton_go(annotation: str) -> None:
    text = extract(f"@triton.jit\ndef k({annotation}):\n    pass\n").text
    assert f"def k({ANNOTATIONS[annotation]}):" in text


@pytest.mark.parametrize(
    "annotation",
    [
        "numpy.int32",
        "tl.pointer_type(tl.float32)",
        "f(x)",
        "'constexpr '",
        "my_constexpr",
        "torch.float32",
    ],
)
def test_annotations_that_may_mean_something_are_refused(annotation: str) -> None:
    with pytest.raises(KernelError, match="annotation"):
        extract(f"@triton.jit\ndef k(x: {annotation}):\n    pass\n")


def test_what_does_nothing_in_a_normal_build_goes() -> None:
    body = "if n > 0:\n        assert n > 0, 'positive'\n    tl.device_assert(n > 0)\n    tl.static_print(n)\n    tl.store(x, n)"
    body += "\n    tl.static_assert(n > 0, f'{n}')"
    text = extract(f"@triton.jit\ndef k(x, n):\n    {body}\n").text
    assert text.endswith("tl.static_assert(n > 0)\n")
    assert (
        "assert n > 0, " not in text and "device_assert" not in text and "static_print" not in text
    )
    assert "if n > 0:\n        pass\n    tl.store(x, n)" in text


def test_a_kernel_may_be_decorated_by_calls() -> None:
    tuned = "k = triton.jit(k)\nk = triton.heuristics({'B': lambda a: 1})(k)\n"
    module = extract(
        f"def k(x, B: tl.constexpr):\n    tl.store(x, B)\n\n{tuned}def run(x):\n    k[(1,)](x)\n"
    )
    assert module.kernels == ("k",) and "heuristics" not in module.text
    for other in ("j = triton.jit(k)\n", "k = triton.jit(k)\nk = 3\n", "k = wrap(k)\n"):
        with pytest.raises(KernelError):
            extract(f"def k(x):\n    pass\n\n{other}")


def test_a_kernels_class_and_its_name_may_be_used() -> None:
    before = (
        "from triton import JITFunction, jit\nimport triton as T\n"
        "def is_kernel(f: JITFunction):\n    return isinstance(f, T.JITFunction)\n"
    )
    methods = "class A:\n    def k(self):\n        return k\n"
    source = kernel("pass", before=before + methods).replace("@triton.jit", "@jit")
    assert extract(source).kernels == ("k",)


def test_constants_come_along_with_what_they_mention_in_order() -> None:
    source = kernel(
        "tl.store(x, C)",
        before='A = 2.0\nB = tl.constexpr(-A ** 2)\nUNUSED = [1]\nC = tl.constexpr(B * 3 + float("inf"))\n',
    )
    lines = [
        ast.unparse(node)
        for node in ast.parse(extract(source).text).body
        if isinstance(node, ast.Assign)
    ]
    assert lines == [
        "A = 2.0",
        "B = tl.constexpr(-A ** 2)",
        "C = tl.constexpr(B * 3 + float('inf'))",
    ]


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
    assert {signature.name: signature.atomic for signature in module.signatures} == {
        "h": True,
        "k": True,
        "q": False,
    }
    assert "def q(x, n: tl.int64)" in module.text and "n: int" in module.text
