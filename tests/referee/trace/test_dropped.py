"""What the cut of a kernel leaves out may do nothing, and no name that it takes along may be bound
a second time.
"""

from __future__ import annotations

import pytest

from referee.reading.kernels import KernelError, extract
from tests.referee.trace.test_kernels import clean_body, kernel

HELPER = "@triton.jit\ndef h(p):\n    tl.store(p, 0)\n    return 1\n"
SPEAKS = {
    "assert": "assert h(x) == 1",
    "assert_of_another_name": "assert also(x) == 1",
    "assert_of_a_variable": "e = h\n    assert e(x) == 1",
    "message_of_an_assert": "assert n > 0, h(x)",
    "store_in_an_assert": "assert tl.store(x, n) is None",
    "method_in_an_assert": "assert x.store(n) is None",
    "atomic_in_an_assert": "assert tl.atomic_add(x, 1) > 0",
    "atomic_method_in_an_assert": "assert x.atomic_xchg(1) > 0",
    "load_in_an_assert": "assert tl.load(x, volatile=True) > 0",
    "barrier_in_an_assert": "assert tl.debug_barrier() is None",
    "hint_in_an_assert": "assert tl.multiple_of(n, 16) > 0",
    "assumption_in_an_assert": "assert tl.assume(n > 3) is None",
    "combine_in_an_assert": "assert tl.reduce(n, 0, h) > 0",
    "call_of_a_subscript": "assert (h,)[0](x) == 1",
    "comprehension_in_an_assert": "assert [h(x) for _ in (1,)]",
    "walrus_in_an_assert": "assert (n := 3)",
    "plain_global_in_an_assert": "assert n < PLAIN",
    "unknown_name_in_an_assert": "assert n < nowhere",
    "device_assert": "tl.device_assert(h(x) == 1)",
    "mask_of_a_device_assert": "tl.device_assert(n > 0, 'n', mask=h(x) == 1)",
    "static_print": "tl.static_print('n', h(x))",
    "text_in_a_static_print": "tl.static_print(f'{h(x)}')",
    "width_in_a_static_print": "tl.static_print(f'{n:{h(x)}}')",
    "message_of_a_static_assert": "tl.static_assert(BLOCK > 0, f'{h(x)}')",
    "annotation": "a: h(x) = 1",
    "annotation_in_brackets": "a: tl.tensor[h(x)] = 1",
    "annotation_by_arithmetic": "a: tl.float32 + h(x) = 1",
    "annotation_by_a_variable": "b = n\n    a: b = 1",
    "annotation_by_a_kernel": "a: h = 1",
    "annotation_by_an_unknown": "a: nowhere.constexpr = 1",
}


@pytest.mark.parametrize("name", SPEAKS)
def test_what_is_dropped_may_do_nothing(name: str) -> None:
    with pytest.raises(KernelError):
        extract(
            kernel(
                SPEAKS[name], "tl.store(x, n)", before=f"{HELPER}also = h\nPLAIN = 3\ne = tl.exp\n"
            )
        )


@pytest.mark.parametrize(
    "value", ["tl.atomic_add(x, n)", "x.atomic_max(n)", "h(x)", "tl.exp(g(x))"]
)
def test_an_annotated_assignment_may_not_write_memory(value: str) -> None:
    before = (
        f"{HELPER}@triton.jit\ndef g(p):\n    return h(p)\n@triton.jit\ndef f(p):\n    return p\n"
    )
    assert (
        clean_body(kernel(f"a = {value}", "b: tl.tensor = f(x)", before=before))[1]
        == "b: tl.tensor = f(x)"
    )
    assert "h" in extract(kernel(f"a: tl.constexpr = {value}", "b = 3", before=before)).text
    with pytest.raises(KernelError, match="twice"):
        extract(kernel(f"a: tl.tensor = {value}", "b = 3", before=before))


SILENT = [
    "assert BLOCK % 16 == 0",
    "assert BLOCK % 16 == 0 and n is not None, f'not {BLOCK} but {n:>3}'",
    "assert n.dtype == tl.float32 or n.dtype.is_fp16(), 'of another ' + 'type'",
    "assert isinstance(n, tl.tensor)",
    "assert len(n.shape) == 2 and n.shape[0] <= MOST",
    "tl.device_assert(n < BLOCK, 'n')",
    "tl.device_assert(tl.sum((n > 0).to(tl.int32), axis=0) > 0, 'n', mask=n[:, None] > 0)",
    "tl.device_assert((n >= 0) & (n < tl.cdiv(BLOCK, 4)) & (tl.max(n, 0) < tl.program_id(0)))",
    "tl.static_print(BLOCK)",
    "tl.static_print('BLOCK', BLOCK, n.shape, n.type)",
    "tl.static_print(f'{BLOCK} {tl.cdiv(BLOCK, 2)}')",
]


@pytest.mark.parametrize("statement", SILENT)
def test_honest_checks_and_prints_go(statement: str) -> None:
    assert clean_body(kernel(statement, "tl.store(x, n)", before="MOST = tl.constexpr(9)\n")) == [
        "tl.store(x, n)"
    ]


@pytest.mark.parametrize(
    "annotation",
    [
        "tl.float32",
        "torch.Tensor",
        "int",
        "'float'",
        "List[int]",
        "Optional[tl.tensor]",
        "Tuple[int, 'x']",
        "tl.tensor",
    ],
)
def test_of_a_variables_annotation_it_stays_that_there_is_one(annotation: str) -> None:
    before = "import torch\nfrom typing import List, Optional, Tuple\n"
    # Triton evaluates the value of an annotated assignment twice, which an atomic shows.
    assert clean_body(kernel(f"a: {annotation} = n", "b: tl.constexpr = 3", before=before)) == [
        "a: tl.tensor = n",
        "b: tl.constexpr = 3",
    ]


BINDINGS = {
    "list_comprehension": "Z = [(S := tl.constexpr(5)) for _ in (1,)]",
    "condition_of_a_comprehension": "Z = [1 for i in (1,) if (S := tl.constexpr(5))]",
    "nested_comprehension": "Z = {i: [(S := tl.constexpr(5)) for _ in (1,)] for i in (1,)}",
    "generator_expression": "Z = max((S := tl.constexpr(5)).value for _ in (1,))",
    "default": "def g(a=(S := tl.constexpr(5))):\n    pass",
    "keyword_default": "def g(*, b, a=(S := tl.constexpr(5))):\n    pass",
    "default_of_a_lambda": "g = lambda a=(S := tl.constexpr(5)): a",
    "default_of_a_lambda_in_a_comprehension": "g = [lambda a=(S := tl.constexpr(5)): a for _ in (1,)]",
    "annotation": "def g(a: (S := tl.constexpr(5))):\n    pass",
    "annotation_of_the_rest": "def g(*a: (S := tl.constexpr(5))):\n    pass",
    "annotation_of_the_result": "def g() -> (S := tl.constexpr(5)):\n    pass",
    "annotation_of_a_constant": "Z: (S := tl.constexpr(5)) = 1",
    "decorator": "@(S := tl.constexpr(5))\ndef g():\n    pass",
    "base_of_a_class": "class A((S := object)):\n    pass",
    "keyword_of_a_class": "class A(metaclass=(S := type)):\n    pass",
    "condition": "if (S := tl.constexpr(5)):\n    Z = 1",
    "loop": "for S in (tl.constexpr(5),):\n    pass",
    "with": "with open(Z) as S:\n    pass",
    "caught_import": "try:\n    import torch\nexcept ImportError as S:\n    pass",
    "deletion": "del S",
    "unpacking": "(Z, *S) = (1, 2)",
    "match": "match 1:\n    case S:\n        pass",
    "match_rest": "match Z:\n    case {**S}:\n        pass",
    "match_star": "match Z:\n    case [*S]:\n        pass",
    "class": "class S:\n    pass",
    "configuration": "def t(x):\n    pass\nt = triton.jit(t)\nt = triton.autotune([(S := triton.Config({}))], key=[])(t)",
    "global_in_a_class": "class A:\n    global S\n    S = 3",
}


@pytest.mark.parametrize("name", BINDINGS)
def test_a_constant_bound_again_in_any_way_is_refused(name: str) -> None:
    for text in (
        f"S = tl.constexpr(4)\n{BINDINGS[name]}\n",
        f"{BINDINGS[name]}\nS = tl.constexpr(4)\n",
    ):
        with pytest.raises(KernelError, match="more than once"):
            extract(kernel("tl.store(x, S)", before=text))


def test_names_of_inner_scopes_bind_nothing_at_the_top() -> None:
    inner = (
        "Z = [S for S in (1, 2)]\nf = lambda S: (Y := S)\n"
        "class A:\n    S = 3\n    def g(self, a=(Y := 3)):\n        return (S := 3)\n"
        "def g(S):\n    S = [S for _ in (1,) if (S := 3)]\n"
    )
    assert clean_body(kernel("tl.store(x, S)", before=f"S = tl.constexpr(4)\n{inner}")) == [
        "tl.store(x, S)"
    ]
