"""A block of rounds with stand-ins for the device's events: who takes part, in which order, and
which times are lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch

from referee.timing import rounds
from referee.timing.rounds import Entry, run_block

ROUNDS = 6


class Event:
    """Marks how much work had been queued when it was recorded; the device has done what
    `Event.done` says.
    """

    queued = 0.0
    done = 0.0

    def __init__(self) -> None:
        self.at: float | None = None

    def record(self, stream: object) -> None:
        self.at = Event.queued

    def query(self) -> bool:
        assert self.at is not None
        return self.at < Event.done

    def elapsed_time(self, end: Event) -> float:
        assert self.at is not None
        assert end.at is not None
        return end.at - self.at


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    Event.queued = Event.done = 0.0
    monkeypatch.setattr(rounds, "_event", Event)
    monkeypatch.setattr(rounds, "stepping", lambda: lambda kernels: None)
    monkeypatch.setattr(rounds, "wait_until_idle", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)


def taking(milliseconds: float, calls: list[int] | None = None) -> Callable[[int], object]:
    def call(index: int) -> None:
        Event.queued += milliseconds
        if calls is not None:
            calls.append(index)

    return call


def block(*entries: Entry) -> rounds.Block:
    return run_block(
        entries, ROUNDS, cast("Any", lambda: None), np.random.default_rng(1), during=lambda: None
    )


def test_an_entry_takes_part_in_its_first_rounds_only() -> None:
    calls: list[int] = []
    found = block(
        Entry("all", taking(2.0)),
        Entry("few", taking(3.0, calls), rounds=2),
        Entry("none", taking(1.0), rounds=0),
    )
    assert found.times["all"] == pytest.approx([2000.0] * ROUNDS)
    assert calls == [0, 1]
    assert found.times["few"][:2] == pytest.approx([3000.0] * 2)
    assert np.isnan(found.times["few"][2:]).all()
    assert np.isnan(found.times["none"]).all()
    assert found.starved == 0


def test_more_rounds_than_the_block_has_are_all() -> None:
    found = block(Entry("a", taking(2.0), rounds=100))
    assert np.isfinite(found.times["a"]).all()


def test_the_order_changes_from_round_to_round() -> None:
    order: list[str] = []
    block(*(Entry(name, lambda _, name=name: order.append(name)) for name in "abc"))  # type: ignore[misc]
    firsts = Counter(order[::3])
    assert len(firsts) > 1
    assert all(set(order[at : at + 3]) == {*"abc"} for at in range(0, len(order), 3))


def test_every_order_is_as_likely() -> None:
    """Also of those that take part in some rounds only."""
    entries = [Entry(name, taking(1.0), rounds=3000 if name == "b" else None) for name in "abc"]
    orders = rounds._orders(entries, 9000, np.random.default_rng(3))
    early, late = Counter(map(tuple, orders[:3000])), Counter(map(tuple, orders[3000:]))
    assert len(early) == 6 and all(400 < count < 600 for count in early.values())
    assert set(late) == {(0, 2), (2, 0)} and all(2700 < count < 3300 for count in late.values())


def test_a_call_that_found_the_queue_dry_has_no_time() -> None:
    def slow_to_queue(index: int) -> None:
        Event.queued += 1.0
        if index in (1, 4):
            Event.done = Event.queued

    found = block(Entry("a", slow_to_queue))
    assert np.flatnonzero(np.isnan(found.times["a"])).tolist() == [1, 4]
    assert found.starved == 2


class Lead:
    """A flush that takes the device a millisecond and the host none; the host's clock runs with the
    calls.
    """

    def __init__(self) -> None:
        self.flushes = 0
        self.host = 0.0

    def __call__(self) -> None:
        self.flushes += 1
        Event.queued = max(Event.queued, self.host) + 1.0

    def slow_call(self, milliseconds: float) -> Callable[[int], object]:
        """A call that keeps the host this long, and the device a hundredth of it."""

        def call(_: int) -> None:
            self.host += milliseconds
            Event.queued += milliseconds / 100
            Event.done = self.host

        return call


@pytest.mark.parametrize("milliseconds", [0.5, 1.5, 4.0, 10.0])
def test_a_slow_host_loses_few_samples_and_no_extra_time(milliseconds: float) -> None:
    """A host slower than the device loses few samples and no more time than it takes."""
    flush, number = Lead(), 300
    entry = Entry("a", flush.slow_call(milliseconds))
    found = run_block(
        [entry], number, cast("Any", flush), np.random.default_rng(1), during=lambda: None
    )
    assert found.starved <= 0.2 * number
    assert flush.flushes <= rounds.LEAST_LEAD + rounds.MOST_LEAD + max(
        number, 1.05 * milliseconds * number
    )


def test_a_host_that_keeps_up_gets_only_the_first_lead() -> None:
    flush = Lead()
    found = run_block(
        [Entry("a", flush.slow_call(0.9))],
        100,
        cast("Any", flush),
        np.random.default_rng(1),
        during=lambda: None,
    )
    assert (found.starved, flush.flushes) == (0, rounds.LEAST_LEAD + 100)


def test_what_comes_before_and_after_a_call_is_not_timed() -> None:
    found = block(Entry("a", taking(2.0), before=taking(30.0), after=taking(50.0)))
    assert found.times["a"] == pytest.approx([2000.0] * ROUNDS)


class Log:
    """What is queued, by kind."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queued = queued = list[str]()

        class Timed(Event):
            def record(self, stream: object) -> None:
                queued.append("event")
                super().record(stream)

        monkeypatch.setattr(
            rounds, "stepping", lambda: lambda kernels: queued.extend(["step"] * kernels)
        )
        monkeypatch.setattr(rounds, "_event", Timed)

    def run(self, number: int, **options: Any) -> list[str]:
        """What is queued for each round of two calls, up to what comes after its second one."""

        def queue(kind: str) -> Callable[..., None]:
            return lambda *_: self.queued.append(kind)

        entries = [Entry(name, queue("call"), queue("before"), queue("after")) for name in "ab"]
        run_block(
            entries,
            number,
            cast("Any", queue("flush")),
            np.random.default_rng(1),
            during=lambda: None,
            **options,
        )
        calls = " ".join(self.queued[rounds.LEAST_LEAD :]).split("after")
        return [first + second for first, second in zip(calls[::2], calls[1::2], strict=False)]


ROUND = "before flush event call event before flush event call event".split()


def test_every_round_begins_with_a_changing_number_of_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ahead of every round come kernels whose number changes from round to round."""
    found = []
    for queued in Log(monkeypatch).run(300):
        steps = queued.split().count("step")
        assert queued.split() == ["step"] * steps + ROUND
        found.append(steps)
    assert set(found) == set(range(rounds.STEPS))
    # In no rhythm of rounds do they come back.
    numbers = np.array(found) - np.mean(found)
    assert all(abs(np.corrcoef(numbers[lag:], numbers[:-lag])[0, 1]) < 0.25 for lag in range(1, 33))


def test_without_steps_nothing_comes_ahead_of_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {tuple(queued.split()) for queued in Log(monkeypatch).run(20, steps=1)} == {tuple(ROUND)}


def test_a_step_is_a_launch_on_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    word = torch.zeros(1, dtype=torch.int32)
    monkeypatch.setattr(torch, "zeros", lambda *size, dtype, device: word)
    step = rounds.stepping()
    step(5)
    step(0)
    assert word.item() == 5
