"""What is done beside a judgement's main line ends with it."""

from __future__ import annotations

import os
import select
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import pytest

from referee.aside import Aside

SECONDS = 20.0
"""So long a test waits for what does not come, where it fails."""


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


def test_who_waits_for_one_of_several_learns_of_what_never_begins() -> None:
    """As the badges of a candidate that falls wait for kernels that others were to compile."""
    with ThreadPoolExecutor(1) as others:
        with Aside("test") as aside:
            aside.submit(lambda: select.select([aside.stop], [], []))
            never = aside.submit(int)
            waiting = others.submit(wait, [never], SECONDS, FIRST_COMPLETED)
        assert never.cancelled() and waiting.result().done == {never}
