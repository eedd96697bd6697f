"""Asserts that use something up: under `python -O` they are gone, so files that have any are traced without them as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from referee.reading.screen import screen
from referee.target import Target
from referee.tracing.tracer import trace_source
from tests.referee.trace.bad import ALLOCATE, COPY, LAUNCH, body
from tests.referee.trace.good import rows

CELL = rows("x", shape=(3, 100))
BEFORE = """
import collections
import functools

class Rows:
    def __init__(self, rows):
        self.rows = 1
        self.items = iter([1, rows])

    def __call__(self, rows):
        self.rows = rows
        return True

    def put(self, rows):
        self.rows = rows
        return True

    def left(self):
        return self.items


def put(box, rows):
    box.append(rows)
    return True


def checked(pairs):
    assert all(a == b for a, b in pairs)
    return pairs


def first(box):
    return box[0]

"""
CHANGING = {
    "an iterator from a tuple": ["it, _ = iter([1, 7]), 0", "assert 1 in it", "n = next(it)"],
    "an iterator in a list": ["its = [iter([1, 7])]", "assert 1 in its[0]", "n = next(its[0])"],
    "an object that is called": ["r = Rows(7)", "assert r(7)", "n = r.rows"],
    "a bound method": ["r = Rows(7)", "check = r.put", "assert check(7)", "n = r.rows"],
    "a partial": ["box = [1]", "check = functools.partial(put, box)", "assert check(7)", "n = box[-1]"],
    "a defaultdict": ["ds = (collections.defaultdict(int),)", "assert all(ds[0][k] == 0 for k in range(7))", "n = len(ds[0])"],
    "a parameter": ["n = len([*checked(zip((1, 2), (1, 2)))])"],
    "what a method returns": ["r = Rows(7)", "assert 1 in r.left()", "n = next(r.left())"],
    "what a function returns": ["box = (iter([1, 7]),)", "assert 1 in first(box)", "n = next(first(box))"],
}


def traced(lines: list[str], tmp_path: Path) -> dict[str, object]:
    source = COPY + body(*lines, ALLOCATE, LAUNCH.replace("x.numel(), BLOCK", "n, BLOCK"), "return y", before=BEFORE)
    return trace_source(source, str(tmp_path / "candidate.py"), Target(), [(CELL.inputs, 1)])


@pytest.mark.parametrize("name", CHANGING)
def test_asserts_that_change_something_are_refused(name: str, tmp_path: Path) -> None:
    rejection = traced(CHANGING[name], tmp_path).get("rejection")
    assert isinstance(rejection, dict) and (rejection["guard"], "python -O" in rejection["reason"]) == ("state", True), rejection


@pytest.mark.parametrize(
    "line", ["assert x.is_contiguous(), 'x'", "assert x.dim() in (1, 2) and n > 0", "assert Rows(7).left()", "assert checked([(1, 1)])"]
)
def test_asserts_that_only_look_pass(line: str, tmp_path: Path) -> None:
    assert "plans" in traced(["n = x.numel()", line], tmp_path)


LOGGER = "import collections, logging\nlogger = logging.getLogger(__name__)\n"


@pytest.mark.parametrize(
    "line",
    [
        "logger.info('%(rows)s', d)",
        "logger.info('%' + '(rows)s', d)",
        "logger.log(20, '%(rows)s', d)",
        "logging.info('%(rows)s', d)",
        "logger.info(*d)",
        "logger.info(f'{x.shape}', d)",
        "getattr(logger, 'info')('%(rows)s', d)",
        "tell = logger.info; tell('%(rows)s', d)",
        "tell = logging.info; tell('%(rows)s', d)",
    ],
)
def test_a_log_looks_nothing_up(line: str) -> None:
    lines = ("d, n = collections.defaultdict(int), x.dim()", line, ALLOCATE, LAUNCH, "return y")
    assert screen(COPY + body(*lines, before=LOGGER))[1] is not None


@pytest.mark.parametrize(
    "line",
    [
        "logger.info('%d rows', n)",
        "logger.info('%d %s', n, x.dtype)",
        "logger.log(20, '%d', n)",
        "logger.info('%(n)d', {'n': n})",
        "logger.info(f'{n} rows')",
        "logging.info('rows', extra={'n': n})",
    ],
)
def test_a_log_tells_what_there_is(line: str) -> None:
    assert screen(COPY + body("n = x.dim()", line, ALLOCATE, LAUNCH, "return y", before=LOGGER))[1] is None
