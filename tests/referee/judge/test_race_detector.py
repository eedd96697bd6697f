"""Data races between programs and between threads of one, as the interpreter's memory sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from referee.interpreter.race_detector import RaceDetector
from referee.interpreter.shadow_memory import Access

HERE = np.array([0, 4, 8], np.int64)
YES, NO = np.ones(3, bool), np.zeros(3, bool)
SIZE = 16


def touch(
    offsets: NDArray[Any] = HERE,
    *,
    lanes: Sequence[int] = (0, 1, 2),
    block: int = 4,
    item: int = 4,
    buffer: int = 0,
    shape: tuple[int, ...] = (),
) -> Access:
    return Access(buffer, SIZE, item, offsets, np.array(lanes)[: offsets.size], shape or (block,))


def launch(*accesses: tuple[int, str]) -> list[int | None]:
    """What each access of the same three elements by a program answers: "r", "w" a new value, "s"
    the same value; an atomic that is "a" acquiring and releasing, "<" acquiring, ">" releasing, "-"
    relaxed; "b" a barrier, "m" a meeting. Capitals: as a block. "U" is a block of atomics, and "X"
    a store of new values at other lanes of a block than those of the rest.
    """
    watched, answers, running = RaceDetector(), list[int | None](), 0
    for program, kind in accesses:
        if program != running:
            watched.switch_to(running := program)
        if kind in "a<>-":
            watched.atomic(0, releases=kind in "a>", acquires=kind in "a<")
        elif kind == "b":
            watched.barrier()
        elif kind == "m":
            watched.reads_complete()
        elif kind == "U":
            answers.append(watched.update(touch(), YES))
        else:
            changes, here = (
                NO if kind in "sS" else YES,
                touch(lanes=(1, 2, 0) if kind == "X" else (0, 1, 2)),
            )
            here = here if kind.isupper() else replace(here, lanes=0 * here.lanes, shape=())
            answers.append(watched.read(here) if kind in "rR" else watched.write(here, changes))
    return answers


def test_only_tiles_of_one_shape_or_of_its_rows_are_held_alike() -> None:
    for read, stored, alike in (
        ((2, 2), (2, 2), True),
        ((2, 2), (4,), False),
        ((4,), (2, 2), False),
        ((4, 2), (2, 4), False),
        ((1, 4), (4, 1), True),
        ((4, 1, 1), (4,), True),
        ((4, 2), (4,), True),
        ((2, 4), (4,), False),
        ((4, 2), (4, 4), False),
        ((8,), (4,), True),
    ):
        watched = RaceDetector()
        watched.switch_to(1)
        first, second = (np.arange(3) * (prod(shape) // 4) for shape in (read, stored))
        assert watched.read(touch(lanes=first.tolist(), shape=read)) is None
        assert watched.write(touch(lanes=second.tolist(), shape=stored), YES) == (
            None if alike else 1
        ), (read, stored)


def test_one_programs_accesses_are_in_order_where_threads_wait() -> None:
    assert launch((1, "r"), (1, "w"), (1, "w"), (1, "s")) == [None] * 4
    assert launch((1, "R"), (1, "W"), (1, "b"), (1, "R"), (1, "W")) == [None] * 4


def test_reading_and_storing_the_same_value_are_no_race() -> None:
    assert launch((1, "r"), (2, "r"), (3, "r")) == [None] * 3
    assert launch((1, "w"), (2, "s")) == [None, None]


def test_reading_what_another_wrote_is_a_race() -> None:
    assert launch((1, "w"), (2, "r")) == [None, 1]


def test_changing_what_another_wrote_or_read_is_a_race() -> None:
    assert launch((1, "w"), (2, "w")) == [None, 1]
    assert launch((1, "r"), (2, "w")) == [None, 1]
    assert launch((1, "r"), (2, "r"), (3, "w")) == [None, None, 2]


def test_an_atomic_after_the_write_and_before_the_read_orders() -> None:
    assert launch((1, "w"), (1, "a"), (2, "a"), (2, "r")) == [None, None]


def test_an_atomic_on_one_side_or_too_early_orders_nothing() -> None:
    assert launch((1, "w"), (1, "a"), (2, "r")) == [None, 1]
    assert launch((1, "w"), (2, "a"), (2, "r")) == [None, 1]
    assert launch((1, "a"), (1, "w"), (2, "a"), (2, "r")) == [None, 1]


def test_an_atomic_orders_as_its_semantics_say() -> None:
    assert launch((1, "w"), (1, ">"), (2, "<"), (2, "r")) == [None, None]
    for released, acquired in ("--", "-a", "a-", "<a", "a>"):
        assert launch((1, "w"), (1, released), (2, acquired), (2, "r")) == [None, 1]
    assert launch((1, "r"), (1, ">"), (2, "<"), (2, "w")) == [None, None]
    for released, acquired in ("--", "-a", "a-", "<a", "a>"):
        assert launch((1, "r"), (1, released), (2, acquired), (2, "w")) == [None, 1]


def test_an_atomic_releases_a_block_only_behind_a_barrier() -> None:
    assert launch((1, "W"), (1, "a"), (2, "a"), (2, "r")) == [None, 1]
    assert launch((1, "W"), (1, "b"), (1, "a"), (2, "a"), (2, "r")) == [None, None]
    assert launch((1, "W"), (1, "a"), (1, "b"), (2, "a"), (2, "r")) == [None, 1]
    assert launch((1, "b"), (1, "W"), (1, "a"), (2, "a"), (2, "W")) == [None, 1]


def test_other_elements_and_other_buffers_do_not_meet() -> None:
    watched = RaceDetector()
    watched.switch_to(1)
    watched.write(touch(HERE[:2]), YES[:2])
    watched.switch_to(2)
    assert watched.write(touch(HERE[2:]), YES[2:]) is None
    assert watched.read(touch(buffer=1)) is None


def test_what_a_program_wrote_it_may_use_only_behind_a_barrier() -> None:
    assert launch((1, "w"), (1, "r")) == [None, 1]
    assert launch((1, "W"), (1, "r")) == [None, 1]
    assert (
        launch((1, "W"), (1, "W"))
        == launch((1, "W"), (1, "w"))
        == launch((1, "w"), (1, "W"))
        == [None, 1]
    )
    assert launch((1, "W"), (1, "b"), (1, "R"), (1, "W"), (1, "w")) == [None, None, None, 1]
    assert launch((1, "w"), (1, "a"), (1, "r")) == [None, None]
    assert launch((1, "W"), (1, "a"), (1, "r")) == [None, 1]
    assert launch((1, "w"), (1, "-"), (1, "r")) == [None, 1]
    assert launch((1, "b"), (1, "W"), (1, "r")) == [None, 1]


def test_threads_race_despite_ordered_writes_of_another_program() -> None:
    watched = RaceDetector()
    watched.switch_to(1)
    watched.write(touch(lanes=(0, 0, 0), block=1), YES)
    watched.atomic(0, releases=True, acquires=True)
    watched.switch_to(2)
    watched.atomic(0, releases=True, acquires=True)
    assert watched.read(touch()) is None
    watched.write(touch(HERE[:1]), YES[:1])
    assert watched.read(touch()) == 2


def test_a_read_may_be_changed_at_its_lane_or_behind_a_barrier() -> None:
    assert (
        launch((1, "R"), (1, "W"))
        == launch((1, "r"), (1, "w"))
        == launch((1, "R"), (1, "R"), (1, "W"))[1:]
        == [None, None]
    )
    assert (
        launch((1, "R"), (1, "X"))
        == launch((1, "R"), (1, "w"))
        == launch((1, "r"), (1, "W"))
        == [None, 1]
    )
    for between in "bm":
        assert launch((1, "R"), (1, between), (1, "X")) == [None, None]
        assert launch((1, between), (1, "R"), (1, "X")) == [None, 1]
    assert launch((1, "R"), (1, "S")) == launch((1, "R"), (1, "s")) == [None, None]
    assert launch((1, "W"), (1, "m"), (1, "R")) == [None, 1]


def test_an_element_read_at_two_lanes_may_be_changed_at_neither() -> None:
    for lanes in ((0, 1, 2), (1, 2, 0)):
        watched = RaceDetector()
        watched.switch_to(1)
        watched.read(touch(lanes=(0, 1, 2)))
        watched.read(touch(lanes=(1, 2, 0)))
        assert watched.write(touch(lanes=lanes), YES) == 1
    watched = RaceDetector()
    watched.switch_to(1)
    watched.read(touch(HERE[[0, 0, 1]]))
    assert watched.write(touch(HERE[1:2], lanes=[2]), YES[:1]) is None
    assert watched.write(touch(HERE[:1], lanes=[1]), YES[:1]) == 1


def test_blocks_of_different_sizes_are_laid_over_one_another() -> None:
    for reads, writes, ordered in (((0, 1, 2), (0, 0, 1), True), ((0, 1, 2), (0, 1, 1), False)):
        for (first, size), (second, other) in (
            ((reads, 4), (writes, 2)),
            ((writes, 2), (reads, 4)),
        ):
            watched = RaceDetector()
            watched.switch_to(1)
            watched.read(touch(lanes=first, block=size))
            assert watched.write(touch(lanes=second, block=other), YES) == (None if ordered else 1)


@pytest.mark.parametrize(("written", "read"), [(8, 4), (4, 8), (8, 1), (1, 8)])
def test_a_value_written_as_one_type_is_known_as_another(written: int, read: int) -> None:
    last = np.array([16 - read], np.int64)
    for program, answer in ((1, 1), (2, 1)):
        watched = RaceDetector()
        watched.switch_to(1)
        watched.write(touch(np.array([16 - written], np.int64), item=written), YES[:1])
        watched.switch_to(program)
        assert watched.read(touch(np.array([0], np.int64), item=read)) is None
        assert watched.read(touch(last, item=read)) == (
            answer if written > read or read == 8 else None
        )
        assert watched.read(touch(np.array([15], np.int64), item=1)) == answer


def test_own_atomics_count_as_stores_for_their_program() -> None:
    assert (
        launch((1, "U"), (1, "R"))
        == launch((1, "U"), (1, "r"))
        == launch((1, "U"), (1, "W"))
        == [None, 1]
    )
    assert launch((1, "U"), (1, "b"), (1, "R"), (1, "W")) == [None] * 3
    assert launch((1, "U"), (1, "m"), (1, "R")) == [None, 1]
    assert launch((1, "U"), (1, "U"), (2, "U"), (2, "S"), (3, "R"))[:4] == [None] * 4
    assert launch((1, "W"), (1, "U")) == launch((1, "w"), (1, "U")) == [None, 1]
    assert launch((1, "W"), (1, "b"), (1, "U")) == [None, None]
    assert launch((1, "R"), (1, "U")) == [None, None]


def test_atomics_and_plain_accesses_of_two_programs_need_order() -> None:
    for plain in "WwRr":
        assert launch((1, "U"), (2, plain)) == launch((1, plain), (2, "U")) == [None, 1]
        assert launch((1, "U"), (1, "b"), (1, ">"), (2, "<"), (2, plain)) == [None, None]
        assert launch((1, plain), (1, "b"), (1, ">"), (2, "<"), (2, "U")) == [None, None]
        # Without a barrier other threads of the first program may still have to do theirs.
        assert launch((1, "U"), (1, ">"), (2, "<"), (2, plain)) == [None, 1]
    assert launch((1, "U"), (2, "U"), (3, "S")) == [None] * 3
    watched = RaceDetector()
    watched.switch_to(1)
    watched.update(touch(lanes=(0, 0, 0), block=1), YES)
    watched.switch_to(2)
    assert watched.read(touch(), volatile=True) is None and watched.read(touch()) == 1


def test_only_atomics_on_one_value_order_two_programs() -> None:
    def read_after(*atomics: tuple[int, int]) -> int | None:
        """Program 1 writes, these programs do atomics on these addresses, the last one reads."""
        watched = RaceDetector()
        watched.switch_to(1)
        watched.write(touch(lanes=(0, 0, 0), block=1), YES)
        for program, address in atomics:
            watched.switch_to(program)
            watched.atomic(address, releases=True, acquires=True)
        return watched.read(touch())

    assert read_after((1, 8), (2, 8)) is read_after((1, 8), (3, 8), (3, 4), (2, 4)) is None
    assert read_after((1, 8), (2, 4)) == read_after((1, 8), (3, 4), (2, 8), (3, 4)) == 1
    assert read_after((1, 8), (3, 4), (3, 8), (2, 4)) == 1


def test_the_last_two_readers_of_an_element_must_be_in_order() -> None:
    assert launch((1, "r"), (1, "a"), (2, "r"), (3, "a"), (3, "w")) == [None, None, 2]
    assert launch((1, "r"), (2, "r"), (2, "a"), (3, "a"), (3, "w")) == [None, None, 1]
    assert launch((1, "r"), (1, "a"), (2, "r"), (2, "a"), (3, "a"), (3, "w")) == [None] * 3
    assert launch((1, "r"), (1, "a"), (2, "a"), (2, "r"), (2, "w")) == [None] * 3
    assert launch((2, "r"), (1, "r"), (1, "a"), (2, "a"), (2, "w")) == [None] * 3
    assert launch((1, "r"), (2, "a"), (1, "a"), (2, "w")) == [None, 1]


def test_programs_in_turns_keep_what_is_their_own() -> None:
    assert (
        launch((1, "W"), (2, "b"), (1, "r"))
        == launch((1, "R"), (2, "m"), (1, "X"))
        == launch((1, "U"), (2, "b"), (1, "r"))
        == [None, 1]
    )
    assert (
        launch((1, "W"), (1, "b"), (2, "a"), (1, "r"))
        == launch((1, "w"), (1, "a"), (2, "a"), (1, "r"))
        == [None, None]
    )
