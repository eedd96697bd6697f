"""What the top level keeps is changed by no call, under whatever name: a shape that no trace has might be the one that does it."""

from __future__ import annotations

import pytest

from referee.reading.screen import screen
from tests.referee.trace.bad import ALLOCATE, COPY, LAUNCH, body

BEFORE = """
import collections
import numpy
BOX = [0, 1]
BOXES = {1: [1], 2: [2]}
LINE = collections.deque([1])
ORDER = collections.OrderedDict(a=1)
STATE = numpy.floor([0.0])
PAIR = collections.namedtuple("Pair", "rows cols")([1], 2)
LIMIT = 7


def step(state):
    state[0] += 1
    return state[0]


def twice(state):
    return step(state) + step(state=state)


def filled(box=BOX):
    if box[0] == 12345:
        box.append(1)
    return box


def padded(sizes, pad):
    sizes = list(sizes)
    sizes.append(pad)
    return sizes


def again(sizes, others):
    sizes = list(sizes)
    if len(sizes) > 1:
        sizes = others
    sizes.append(1)
    return sizes

"""
CHANGING = [
    "box = BOX; box.append(1)",
    "box = BOX if x.dim() == 2 else []; box.append(1)",
    "first = BOX; box = first; box[0] = 1",
    "box, n = BOX, 1; box.append(1)",
    "box = BOXES[1]; box.append(1)",
    "box = BOXES.get(1); box.append(1)",
    "[box.append(1) for box in BOXES.values()]",
    "box = BOX; box += [1]",
    "(box := BOX).append(1); box.append(2)",
    "BOX.reverse()",
    "PAIR._asdict()['rows'].append(1)",
    "pair = PAIR._replace(cols=3); pair.rows.append(1)",
    "LINE.appendleft(1)",
    "LINE.popleft()",
    "ORDER.move_to_end('a')",
    "step(STATE)",
    "step(state=STATE)",
    "twice(BOX)",
    "box = BOX; twice(box)",
    "filled()",
    "again(BOX, BOX)",
]
READING = [
    "box = BOX; n = box[0]",
    "box = list(BOX); box.append(1)",
    "box = {**BOXES}; box[3] = [1]; box.update(BOXES)",
    "box = [1]; step(box); twice(box); box.reverse()",
    "n = padded(BOX, 1)",
    "n = LIMIT; n += 1",
    "pair = PAIR._replace(cols=3); n = pair._asdict()['cols'] + pair.cols",
    "n = [size for size in BOX]; n.append(BOX[0])",
    "for size in BOX:\n        n = [size]\n        n.append(size)",
]


@pytest.mark.parametrize("line", CHANGING)
def test_what_is_kept_is_not_changed(line: str) -> None:
    _, rejection = screen(COPY + body(f"if x.dim() == 12345:\n        {line}", ALLOCATE, LAUNCH, "return y", before=BEFORE))
    assert rejection is not None and (rejection.guard, "changed by a call" in rejection.reason) == ("state", True), rejection


@pytest.mark.parametrize("line", READING)
def test_it_may_be_read_and_copied(line: str) -> None:
    before = BEFORE[: BEFORE.index("def filled")] + BEFORE[BEFORE.index("def padded") :]
    assert screen(COPY + body(line, ALLOCATE, LAUNCH, "return y", before=before))[1] is None
