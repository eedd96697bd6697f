"""Operators of host code: `%` makes no text of what differs, no set is made of a view, and numbers and messages are left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from referee.reading.screen import screen
from referee.target import Target
from referee.tracing.tracer import trace_source
from tests.referee.trace.bad import ALLOCATE, COPY, LAUNCH, body
from tests.referee.trace.good import rows

CELL = rows("x", shape=(3, 100))
BEFORE = """
TEXT = '%s'
SIZES = {'a': 1, 'b': 2}
KEYS = SIZES.keys()

class Box:
    def __init__(self):
        self.value = 7


def both(one, other):
    return one & other

"""
REFUSED = {
    "a text of a kernel": ("a text is made of", ["n = len(TEXT % copy)"]),
    "in a tuple": ("a text is made of", ["n = len(TEXT % (copy,))"]),
    "of a method": ("a text is made of", ["n = (TEXT % copy.run)[-3]"]),
    "of bytes": ("a text is made of", ["made = b'%a'", "n = made % copy"]),
    "augmented": ("a text is made of", ["n = '%s'", "n %= copy"]),
    "augmented in a list": ("a text is made of", ["n = ['%s']", "n[0] %= copy"]),
    "in a lambda": ("a text is made of", ["n = (lambda a, b: a % b)(TEXT, copy)"]),
    "in an assert": ("a text is made of", ["assert TEXT % copy"]),
    "two views": ("a set of a view", ["one, other = SIZES.keys(), SIZES.keys()", "n = list(one & other)"]),
    "a view and a tuple": ("a set of a view", ["n = [*(KEYS - ('z', x))]"]),
    "a view that is handed on": ("a set of a view", ["n = list(both(SIZES.keys(), SIZES.keys()))"]),
    "a view of pairs": ("a set of a view", ["one = SIZES.items()", "n = list(one ^ ())"]),
    "a view changed": ("a set of a view", ["one = SIZES.keys()", "one |= {x.dim()}", "n = list(one)"]),
    "a view changed in a list": ("in a container", ["one = [SIZES.keys()]", "one[0] &= ['a']", "n = list(one[0])"]),
}
ALLOWED = [
    "n = x.shape[0] % x.dim()",
    "n = x.shape[0] - x.dim()",
    "n = x.dim() | 3 & x.shape[1] ^ x.dim()",
    "n = 7; n %= x.dim(); n -= x.dim(); n |= x.dim()",
    "n = [7]; n[0] %= x.dim(); n[0] -= x.dim()",
    "n = Box().value % x.dim()",
    "n = TEXT % x.dim()",
    "n = TEXT % x.dtype",
    "n = TEXT % (x.shape,)",
    "n = {1, 2} - {x.dim()}",
    "n = 'a' in SIZES.keys() & KEYS",
    "n = {**SIZES} | SIZES",
    "n = None\n    if x.dim() > 9:\n        raise ValueError('%s of %s' % (x, copy))",
    "n = 1\n    assert x.dim() < 9, '%s of %s' % (x, x.dtype)",
]


def told(source: str, tmp_path: Path) -> dict[str, Any]:
    return trace_source(source, str(tmp_path / "candidate.py"), Target(), [(CELL.inputs, 1)])


@pytest.mark.parametrize("name", REFUSED)
def test_what_tells_processes_apart_is_refused(name: str, tmp_path: Path) -> None:
    says, lines = REFUSED[name]
    rejection = told(COPY + body(*lines, ALLOCATE, LAUNCH, "return y", before=BEFORE), tmp_path).get("rejection")
    assert rejection is not None and (rejection["guard"], says in rejection["reason"]) == ("state", True), rejection


@pytest.mark.parametrize("line", ALLOWED)
def test_numbers_and_messages_are_left_alone(line: str, tmp_path: Path) -> None:
    source = COPY + body(line, ALLOCATE, LAUNCH, "return y", before=BEFORE)
    assert screen(source)[1] is None
    assert "plans" in told(source, tmp_path)


@pytest.mark.parametrize("word", ["and_", "mod", "or_", "sub", "xor"])
def test_operators_that_are_looked_after_are_written_out(word: str) -> None:
    _, rejection = screen("import operator\n" + COPY + body(f"n = operator.{word}(5, 3)", ALLOCATE, LAUNCH, "return y"))
    assert rejection is not None and f"operator.{word}" in rejection.reason


def test_an_operator_is_evaluated_once(tmp_path: Path) -> None:
    """What stands on the left of `%=` is not called again by the guard, and errors are Python's own."""
    before = "def place(calls):\n    calls.append(1)\n    return 0\n"
    lines = [
        "calls, box = [], [7]",
        "box[place(calls)] %= x.dim()",
        "n = 1 if len(calls) == 1 else 'a' - calls",
        ALLOCATE,
        LAUNCH,
        "return y",
    ]
    assert "plans" in told(COPY + body(*lines, before=before), tmp_path)
    failed = told(COPY + body("return x.dtype - x.dim()"), tmp_path)["rejection"]
    assert failed["guard"] == "trace_error" and "TypeError: unsupported operand" in failed["reason"]
