"""What is done beside a judgement's main line ends with it."""

from __future__ import annotations

import os
import select
import threading
from concurrent.futures import Future

import pytest

from referee.aside import Aside


def test_what_is_submitted_is_done_in_order() -> None:
    done: list[int] = []
    with Aside("test") as aside:
        futures = [aside.submit(lambda number=number: done.append(number)) for number in range(5)]  # type: ignore[misc]
        futures[-1].result()
        assert not select.select([aside.stop], [], [], 0)[0]
    assert done == list(range(5))


def test_at_the_end_what_watches_is_told_and_what_has_not_begun_never_does() -> None:
    begun, waiting = threading.Event(), list[Future[str]]()

    def watching(stop: int) -> str:
        begun.set()
        select.select([stop], [], [])
        return "told"

    with pytest.raises(KeyError), Aside("test") as aside:
        waiting += [aside.submit(lambda: watching(aside.stop)), aside.submit(lambda: watching(aside.stop))]
        begun.wait()
        raise KeyError
    assert waiting[0].result() == "told" and waiting[1].cancelled()
    with pytest.raises(OSError):
        os.fstat(aside.stop)


def test_an_error_is_told_to_who_asks() -> None:
    def fails() -> None:
        raise ValueError("of this test")

    with Aside("test") as aside:
        asked = aside.submit(fails)
        aside.submit(fails)
        with pytest.raises(ValueError, match="of this test"):
            asked.result()
