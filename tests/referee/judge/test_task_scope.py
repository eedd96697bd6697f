"""What is done beside a judgement's main line ends with it."""

from __future__ import annotations

import select
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import pytest

from referee.concurrency import CancelToken, TaskScope

SECONDS = 20.0
"""So long a test waits for what does not come, where it fails."""


def test_what_is_submitted_is_done_in_order() -> None:
    done: list[int] = []
    with TaskScope("test") as scope:
        futures = [scope.submit(lambda number=number: done.append(number)) for number in range(5)]  # type: ignore[misc]
        futures[-1].result()
        assert not select.select([scope.cancel], [], [], 0)[0]
    assert done == list(range(5))


def test_the_end_wakes_the_watcher_and_drops_the_rest() -> None:
    begun, waiting = threading.Event(), list[Future[str]]()

    def watching(cancel: CancelToken) -> str:
        begun.set()
        select.select([cancel], [], [])
        return "told"

    with pytest.raises(KeyError), TaskScope("test") as scope:
        waiting += [
            scope.submit(lambda: watching(scope.cancel)),
            scope.submit(lambda: watching(scope.cancel)),
        ]
        begun.wait()
        raise KeyError
    assert waiting[0].result() == "told" and waiting[1].cancelled()
    with pytest.raises(OSError):
        scope.cancel.fileno()


def test_an_error_is_told_to_who_asks() -> None:
    def fails() -> None:
        raise ValueError("of this test")

    with TaskScope("test") as scope:
        asked = scope.submit(fails)
        scope.submit(fails)
        with pytest.raises(ValueError, match="of this test"):
            asked.result()


def test_waiting_for_one_of_several_reports_what_never_begins() -> None:
    """As the badges of a candidate that falls wait for kernels that others were to compile."""
    with ThreadPoolExecutor(1) as others:
        with TaskScope("test") as scope:
            scope.submit(lambda: select.select([scope.cancel], [], []))
            never = scope.submit(int)
            waiting = others.submit(wait, [never], SECONDS, FIRST_COMPLETED)
        assert never.cancelled() and waiting.result().done == {never}
