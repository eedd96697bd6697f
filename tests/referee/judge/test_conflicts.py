"""Data races between programs and between threads of one, as the interpreter's memory sees them."""

from __future__ import annotations

import numpy as np

from referee.interpreter.conflicts import Conflicts

HERE = np.array([0, 4, 8], np.int64)
YES, NO = np.ones(3, bool), np.zeros(3, bool)
SIZE = 16


def launch(*accesses: tuple[int, str]) -> list[int | None]:
    """What each access of the same three elements by a program answers: "r", "w" a new value, "s" the same value; an atomic
    that is "a" acquiring and releasing, "<" acquiring, ">" releasing, "-" relaxed; "b" a barrier. Capitals: stored as a block.
    """
    watched, answers = Conflicts(), list[int | None]()
    for program, kind in accesses:
        watched.program(program)
        if kind in "a<>-":
            watched.atomic(releases=kind in "a>", acquires=kind in "a<")
        elif kind == "b":
            watched.barrier()
        else:
            changes, block = YES if kind in "wW" else NO, kind.isupper()
            answers.append(watched.read(0, SIZE, HERE) if kind == "r" else watched.write(0, SIZE, HERE, changes, block=block))
    return answers


def test_what_one_program_does_alone_is_in_order_where_threads_wait() -> None:
    assert launch((1, "r"), (1, "w"), (1, "w"), (1, "s")) == [None] * 4
    assert launch((1, "r"), (1, "W"), (1, "b"), (1, "r"), (1, "W")) == [None] * 4


def test_reading_and_storing_the_same_value_are_no_race() -> None:
    assert launch((1, "r"), (2, "r"), (3, "r")) == [None] * 3
    assert launch((1, "w"), (2, "s")) == [None, None]


def test_reading_what_another_wrote_is_a_race() -> None:
    assert launch((1, "w"), (2, "r")) == [None, 1]


def test_changing_what_another_wrote_or_read_is_a_race() -> None:
    assert launch((1, "w"), (2, "w")) == [None, 1]
    assert launch((1, "r"), (2, "w")) == [None, 1]
    assert launch((1, "r"), (2, "r"), (3, "w")) == [None, None, 0]


def test_an_atomic_after_the_write_and_one_before_the_read_put_them_in_order() -> None:
    assert launch((1, "w"), (1, "a"), (2, "a"), (2, "r")) == [None, None]


def test_an_atomic_on_one_side_or_before_the_write_orders_nothing() -> None:
    assert launch((1, "w"), (1, "a"), (2, "r")) == [None, 1]
    assert launch((1, "w"), (2, "a"), (2, "r")) == [None, 1]
    assert launch((1, "a"), (1, "w"), (2, "a"), (2, "r")) == [None, 1]


def test_an_atomic_orders_as_its_semantics_say() -> None:
    assert launch((1, "w"), (1, ">"), (2, "<"), (2, "r")) == [None, None]
    for released, acquired in ("--", "-a", "a-", "<a", "a>"):
        assert launch((1, "w"), (1, released), (2, acquired), (2, "r")) == [None, 1]
    assert launch((1, "r"), (2, "a"), (2, "w")) == [None, None]
    assert launch((1, "r"), (2, "-"), (2, "w")) == [None, 1]


def test_an_atomic_releases_a_block_only_behind_a_barrier() -> None:
    assert launch((1, "W"), (1, "a"), (2, "a"), (2, "r")) == [None, 1]
    assert launch((1, "W"), (1, "b"), (1, "a"), (2, "a"), (2, "r")) == [None, None]
    assert launch((1, "W"), (1, "a"), (1, "b"), (2, "a"), (2, "r")) == [None, 1]
    assert launch((1, "b"), (1, "W"), (1, "a"), (2, "a"), (2, "W")) == [None, 1]


def test_other_elements_and_other_buffers_do_not_meet() -> None:
    watched = Conflicts()
    watched.program(1)
    watched.write(0, SIZE, HERE, YES, block=True)
    watched.program(2)
    assert watched.write(0, SIZE, HERE + 1, YES, block=True) is None
    assert watched.read(1, SIZE, HERE) is None


def test_what_a_program_wrote_it_may_use_only_behind_a_barrier() -> None:
    assert launch((1, "w"), (1, "r")) == [None, 1]
    assert launch((1, "W"), (1, "r")) == [None, 1]
    assert launch((1, "W"), (1, "W")) == launch((1, "W"), (1, "w")) == launch((1, "w"), (1, "W")) == [None, 1]
    assert launch((1, "W"), (1, "b"), (1, "r"), (1, "W"), (1, "w")) == [None, None, None, 1]
    assert launch((1, "w"), (1, "a"), (1, "r")) == [None, None]
    assert launch((1, "W"), (1, "a"), (1, "r")) == [None, 1]
    assert launch((1, "w"), (1, "-"), (1, "r")) == [None, 1]
    assert launch((1, "b"), (1, "W"), (1, "r")) == [None, 1]


def test_threads_of_one_program_race_though_another_s_writes_are_in_order() -> None:
    watched = Conflicts()
    watched.program(1)
    watched.write(0, SIZE, HERE, YES, block=False)
    watched.atomic(releases=True, acquires=True)
    watched.program(2)
    watched.atomic(releases=True, acquires=True)
    assert watched.read(0, SIZE, HERE) is None
    watched.write(0, SIZE, HERE[:1], YES[:1], block=True)
    assert watched.read(0, SIZE, HERE) == 2
