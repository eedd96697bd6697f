"""Work over processes: every result comes once, and a process that dies is an error."""

from __future__ import annotations

import os
from concurrent.futures.process import BrokenProcessPool

import pytest

from forge.workers import results


def test_every_result_comes_once() -> None:
    assert sorted(results(abs, range(-5, 0), 2)) == [1, 2, 3, 4, 5]


def test_a_process_that_dies_ends_the_whole() -> None:
    with pytest.raises(BrokenProcessPool):
        list(results(os._exit, [1, 1, 1], 1))


def test_what_a_call_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        list(results((1).__truediv__, [1, 0, 2], 1))
