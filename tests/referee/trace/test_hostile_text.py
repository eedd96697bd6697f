"""Cutting kernels out of hostile text: an answer after little work, and never a fault."""

from __future__ import annotations

import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.reading.kernels import KernelError, extract
from referee.reading.source import MAX_BYTES
from tests.referee.trace.good import GOOD
from tests.referee.trace.test_kernels import kernel

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


@settings(max_examples=100, deadline=None)
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
    for _ in range(300):
        text = rng.choice(sources)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            text = (
                text[:at] + rng.choice([rng.choice(fragments), ""]) + text[at + rng.randint(0, 3) :]
            )
        try:
            module = extract(text)
        except KernelError:
            continue
        survived += 1
        assert extract(module.text).text == module.text
    assert survived > 20
