"""Turns of clients in a session's queue."""

from __future__ import annotations

import threading

from kmint_tui.service.server import Turns


def test_clients_take_turns_whatever_one_of_them_has_waiting() -> None:
    turns: Turns[str] = Turns()
    for item in ("a1", "a2", "a3"):
        turns.put("a", item)
    turns.put("b", "b1")
    assert turns.put("c", "c1") == 5
    assert [turns.take() for _ in range(5)] == ["a1", "b1", "c1", "a2", "a3"]


def test_a_client_that_goes_takes_its_items_with_it() -> None:
    turns: Turns[int] = Turns()
    for item in range(4):
        turns.put("a", item)
    turns.put("b", 9)
    assert turns.drop("a", lambda item: item == 1) == [1]
    assert turns.drop("a") == [0, 2, 3]
    assert turns.drop("nobody") == []
    assert (turns.take(), len(turns)) == (9, 0)


def test_closing_ends_those_who_wait() -> None:
    turns: Turns[int] = Turns()
    taken: list[int | None] = []
    thread = threading.Thread(target=lambda: taken.append(turns.take()))
    thread.start()
    turns.close()
    thread.join()
    turns.put("a", 1)
    assert (taken, turns.take()) == ([None], None)
