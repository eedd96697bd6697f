"""Real jobs beside made-up waits for a processor: what ends them, and with which words."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable

import pytest

from referee.sandbox import zygote_job
from referee.sandbox.clock import CEILING, Reading, ThreadTime, threads_of
from referee.sandbox.zygote import MachineBusy, Workers, Zygote
from tests.referee.sandbox.support import HOSTILE, LIMITS, WORLDS

QUICK = dataclasses.replace(LIMITS, seconds=0.2)


def waiting(pid: int) -> Reading:
    """A thread that gets no processor."""
    return {pid: ThreadTime(ran=0.0, waited=time.monotonic(), state="R")}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], Reading]], None]:
    """Makes the clocks of jobs read these threads."""
    return lambda read: monkeypatch.setattr(zygote_job, "threads_of", read)


def test_a_starved_job_is_no_timeout(
    zygote: Zygote, seen: Callable[[Callable[[int], Reading]], None]
) -> None:
    seen(waiting)
    outcome = zygote.run("hostile_resources:sleep", b"", limits=QUICK)
    assert (outcome.status, outcome.data) == ("starved", b"")
    assert "too busy" in outcome.detail and outcome.seconds >= CEILING * QUICK.seconds


def test_a_starved_job_of_a_judge_is_lost(
    seen: Callable[[Callable[[int], Reading]], None],
) -> None:
    seen(waiting)
    with (
        Workers(preload=(), extra_path=(str(HOSTILE),), demand="any") as workers,
        pytest.raises(MachineBusy, match="run fewer jobs at the same time, and judge again"),
    ):
        workers.run("hostile_resources:sleep", b"", limits=QUICK)


def test_a_job_that_waited_goes_on_beyond_its_limit(
    zygote: Zygote, seen: Callable[[Callable[[int], Reading]], None]
) -> None:
    """The job gets its turn at the tenth look, after more than twice its seconds."""
    read, write = os.pipe()
    begun = time.monotonic()
    looks = 0

    def read_threads(pid: int) -> Reading:
        nonlocal looks
        looks += 1
        if looks == 10:
            os.write(write, b"go")
        return waiting(pid)

    seen(read_threads)
    try:
        outcome = zygote.run("hostile_resources:wait_for", b"", limits=QUICK, fds=[read])
    finally:
        os.close(read)
        os.close(write)
    assert (outcome.status, outcome.data) == ("ok", b"go")
    assert time.monotonic() - begun > 2 * QUICK.seconds


@pytest.mark.parametrize("world", WORLDS)
def test_the_clock_reads_the_job_and_nothing_else(
    servers: dict[str, Zygote],
    monkeypatch: pytest.MonkeyPatch,
    seen: Callable[[Callable[[int], Reading]], None],
    world: str,
) -> None:
    """In a namespace of its own the job has another id there than here."""
    known = set[int]()
    server = servers[world].pid

    def read_threads(pid: int) -> Reading:
        known.add(pid)
        found = threads_of(pid)
        assert pid in found or not found
        return found

    seen(read_threads)
    outcome = servers[world].run("hostile_resources:sleep", b"", limits=QUICK)
    assert outcome.status == "timeout"
    assert known - {server}, "the job's own process"


def test_a_signal_before_the_processor_time_is_used_up(zygote: Zygote) -> None:
    """Linux counts whole ticks, so its signal may come early."""
    outcome = zygote.run("hostile_resources:told_too_early", b"", limits=LIMITS)
    assert (outcome.status, outcome.data) == ("ok", b"went on")
