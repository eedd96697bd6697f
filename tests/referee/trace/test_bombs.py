"""Constants that would take for ever, refused by their line before anything runs."""

from __future__ import annotations

import signal

import pytest

from referee.reading.source import SourceError, parse
from referee.tracing.candidate_file import within

BOMBS = {
    "A = 10 ** 10 ** 9": "`10 ** 10 ** 9` is a number of",
    "A = tl.constexpr(1 << (1 << 40))": "`1 << (1 << 40)` is a number of",
    "A = 10 ** 900\nB = A ** 900": "line 2: `A ** 900`",
    "A = 1 << 4000\nB = A * A": "line 2: `A * A`",
    "def run(x):\n    return 7 ** 7 ** 9": "line 2: `7 ** 7 ** 9`",
    "A = 'ab' * 10 ** 12": "a text of 2,000,000,000,000 characters",
    "A = 10 ** 12 * 'ab'": "a text of 2,000,000,000,000 characters",
    "A = 1\nA = 4000\nB = 2 ** (A + A)": "line 3",
    "A = -(10 ** 10 ** 9)": "`10 ** 10 ** 9`",
    "def f(n=9 ** 9 ** 9):\n    pass": "line 1",
}
HARMLESS = (
    "A = 1 << 62\nB = 2 ** 31 - 1\nC = 10 ** 6 * 4",
    "def run(x):\n    n = x.numel()\n    return n ** 2 << n",
    "A = 2.0 ** 1000\nB = 1e300 ** 2.0\nC = 0 << (1 << 40)\nD = 1 ** (10 ** 12)",
    "A = 'ab' * 3\nB = 7 // 2\nC = 7 // 0\nD = 2 ** -1",
)


@pytest.mark.parametrize("text", BOMBS)
def test_a_constant_that_grows_too_large_is_refused(text: str) -> None:
    with pytest.raises(SourceError) as raised:
        parse(text)
    assert BOMBS[text] in str(raised.value) and "too long to compute" in str(raised.value)


@pytest.mark.parametrize("text", HARMLESS)
def test_other_arithmetic_is_not(text: str) -> None:
    assert parse(text).body


class Late(BaseException):
    pass


def test_a_signal_before_the_time_is_used_up_ends_nothing() -> None:
    """Linux counts whole ticks, so its signal may come early."""
    with within(1000.0, "file.py", Late):
        signal.raise_signal(signal.SIGPROF)


def test_a_timeout_names_the_line_that_was_running() -> None:
    code = compile("def f():\n    while True:\n        pass\n", "file.py", "exec")
    names: dict[str, object] = {}
    exec(code, names)
    function = names["f"]
    assert callable(function)
    with pytest.raises(Late, match=r"^line [23]: $"), within(0.02, "file.py", Late):
        function()


def test_who_goes_on_after_it_is_told_again() -> None:
    # The second `except` catches a signal that comes while the first one works.
    text = (
        "def f(late):\n    for turn in range(3):\n        try:\n            try:\n"
        "                while True:\n                    turn += 0\n"
        "            except late: pass\n        except late: pass\n    return turn\n"
    )
    names: dict[str, object] = {}
    exec(compile(text, "file.py", "exec"), names)
    function = names["f"]
    assert callable(function)
    with within(0.02, "file.py", Late):
        assert function(Late) == 2
