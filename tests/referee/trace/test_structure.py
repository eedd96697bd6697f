"""Kernels that differ in names alone have one structure, and those that do something else have
another.
"""

from __future__ import annotations

import pytest

from referee.case_runs import structures

HEADER = "import triton\nimport triton.language as tl\n\n"
ROW = """
@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + cols, mask=cols < n, other=0.0)
    {body}
"""
STORE = "tl.store(out + row * n + cols, {value}, mask=cols < n)"
PLAIN = STORE.format(value="v * 2.0")
LOOP = """
@triton.jit
def {name}({x}, {out}, {n}, BLOCK: tl.constexpr):
    for {at} in range(0, {n}, BLOCK):
        {v} = tl.load({x} + {at} + tl.arange(0, BLOCK))
        tl.store({out} + {at} + tl.arange(0, BLOCK), {v} * {by})
"""


def structure(*lines: str) -> object:
    """That of the kernel with these lines at its end."""
    (found,) = structures(HEADER + ROW.format(body="\n    ".join(lines))).values()
    return found


OTHER = {
    "another number": (STORE.format(value="v * 2.5"),),
    "an integer": (STORE.format(value="v * 2"),),
    "another operation": (STORE.format(value="v + 2.0"),),
    "the other way round": (STORE.format(value="2.0 * v"),),
    "a number of its own": ("two = 2.0", STORE.format(value="v * two")),
    "a cast to something else": (STORE.format(value="(v * 2.0).to(tl.bfloat16)"),),
    "a cast to the type of another pointer": (
        STORE.format(value="(v * 2.0).to(x.dtype.element_ty)"),
    ),
    "another mask": ("tl.store(out + row * n + cols, v * 2.0, mask=cols <= n)",),
    "no mask": ("tl.store(out + row * n + cols, v * 2.0)",),
    "another place": ("tl.store(out + row * n + cols + 1, v * 2.0, mask=cols < n)",),
    "one more store": (PLAIN, PLAIN),
    "one more load": ("more = tl.load(x + 1)", PLAIN),
    "a load behind the store": (
        PLAIN,
        "more = tl.load(x + row * n + cols, mask=cols < n, other=0.0)",
    ),
    "a load that came before": ("tl.store(x + row, 0.0)", PLAIN),
    "what may fail": ("tl.static_assert(BLOCK > 8)", PLAIN),
    "a barrier": ("tl.debug_barrier()", PLAIN),
    "a branch": ("if n > 8:", f"    {PLAIN}"),
}


@pytest.mark.parametrize("name", OTHER)
def test_what_does_something_else_has_another(name: str) -> None:
    """Every value, place, mask, load and store counts, and so does the order of those that use
    memory.
    """
    assert structure(*OTHER[name]) != structure(PLAIN)


def test_parameters_count_by_their_places_and_kinds() -> None:
    """Names of parameters and of the kernel are free; constants, annotations and defaults are not."""
    text = ROW.format(body=PLAIN)

    def of(old: str, new: str) -> object:
        return next(iter(structures(HEADER + text.replace(old, new)).values()))

    plain = of("", "")
    assert of("kernel(x, out,", "other(a, out,") != plain
    renamed = text.replace("kernel(x, out, n,", "other(a, b, c,")
    for before, after in (("(x +", "(a +"), ("(out +", "(b +"), ("* n", "* c"), ("< n", "< c")):
        renamed = renamed.replace(before, after)
    assert next(iter(structures(HEADER + renamed).values())) == plain
    for old, new in (
        ("x, out", "out, x"), ("BLOCK: tl.constexpr", "BLOCK"), ("n, BLOCK", "n: tl.int64, BLOCK"), ("tl.constexpr)", "tl.constexpr = 8)"),
    ):  # fmt: skip
        assert of(old, new) != plain, new


def test_only_names_are_left_out() -> None:
    """No new name is taken for one of the module's."""
    names = {"name": "kernel", "x": "x", "out": "out", "n": "n", "at": "at", "v": "v", "by": "2.0"}
    others = {"name": "other", "x": "a", "out": "b", "n": "c", "at": "d", "v": "e", "by": "2.0"}
    plain, renamed, changed = (
        structures(HEADER + LOOP.format(**some)) for some in (names, others, names | {"by": "3.0"})
    )
    assert plain["kernel"] == renamed["other"] != changed["kernel"]
    constant = HEADER + "_4 = tl.constexpr(2.0)\n" + LOOP
    one, other = (structures(constant.format(**names | {"by": by}))["kernel"] for by in ("_4", "v"))
    assert one != other


def test_what_a_kernel_reads_of_its_module_counts() -> None:
    """Constants at the top level, and helpers, of which the text counts."""
    helper = "@triton.jit\ndef twice(v):\n    return v * {by}\n\n"
    texts = [
        HEADER + helper.format(by=by) + ROW.format(body=STORE.format(value="twice(v)"))
        for by in (2.0, 3.0)
    ]
    assert (
        structures(texts[0])["kernel"]
        == structures(texts[0])["kernel"]
        != structures(texts[1])["kernel"]
    )
    texts = [
        f"{HEADER}BY = tl.constexpr({by})\n{ROW.format(body=STORE.format(value='v * BY'))}"
        for by in (2.0, 3.0)
    ]
    assert structures(texts[0])["kernel"] != structures(texts[1])["kernel"]
