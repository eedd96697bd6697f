"""The clock of a job, on made-up numbers of Linux, and on what Linux says of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from referee.sandbox.clock import (
    CEILING,
    SHORTEST,
    Clock,
    Reading,
    ThreadTime,
    TimeUp,
    parsed,
    pid_of,
    threads_of,
)

LIMIT = 3.0
STEP = 1.2 * SHORTEST
"""Seconds between two looks, so that each of them is due."""
ABOUT = 3 * STEP


@dataclass
class World:
    """Threads that `live` through each second as they are told to."""

    live: Callable[[World, float], None]
    now: float = 1000.0
    threads: dict[int, ThreadTime] = field(default_factory=dict)
    load: bool = False

    def thread(
        self, number: int, *, ran: float = 0.0, waited: float | None = 0.0, state: str = "S"
    ) -> None:
        """A thread runs and waits for so many seconds more, and is then in this state."""
        before = self.threads.get(number, ThreadTime(ran=0.0, waited=0.0, state="S"))
        self.threads[number] = ThreadTime(
            ran=before.ran + ran,
            waited=None if waited is None else (before.waited or 0.0) + waited,
            state=state,
        )

    def clock(self) -> Clock:
        return Clock(
            LIMIT, lambda: dict(self.threads), now=lambda: self.now, busy=lambda: self.load
        )

    def passes(self, clock: Clock, seconds: float) -> TimeUp | None:
        """What the clock says as soon as the time is up, or after so many seconds."""
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            self.live(self, STEP)
            if up := clock.look():
                return up
        return None


def starved(world: World, seconds: float) -> None:
    world.thread(1, ran=0.05 * seconds, waited=0.95 * seconds, state="R")


def asleep(world: World, seconds: float) -> None:
    world.thread(1, state="S")


def test_waits_for_a_processor_do_not_count() -> None:
    world = World(starved)
    clock = world.clock()
    assert world.passes(clock, 5 * LIMIT) is None
    assert clock.counted == pytest.approx(0.25 * LIMIT)


@pytest.mark.parametrize("state", ["S", "D", "Z"])
def test_a_job_that_sleeps_is_out_of_time(state: str) -> None:
    world = World(lambda world, seconds: world.thread(1, state=state))
    if state == "Z":
        world.thread(2, state="S")
    clock = world.clock()
    assert world.passes(clock, 2 * LIMIT) == "timeout"
    assert clock.passed == pytest.approx(LIMIT, abs=ABOUT)


def test_a_job_that_runs_is_out_of_time() -> None:
    world = World(lambda world, seconds: world.thread(1, ran=seconds, state="R"))
    assert world.passes(world.clock(), 2 * LIMIT) == "timeout"


def test_threads_that_wait_for_each_other_are_out_of_time() -> None:
    """Eight threads spin on two free processors: only they keep each other waiting."""

    def spin(world: World, seconds: float) -> None:
        for number in range(8):
            world.thread(number, ran=seconds / 4, waited=0.75 * seconds, state="R")

    world = World(spin)
    clock = world.clock()
    assert world.passes(clock, 2 * LIMIT) == "timeout"
    assert clock.passed == pytest.approx(LIMIT, abs=ABOUT)


def test_starved_at_the_ceiling_says_what_to_do() -> None:
    world = World(starved)
    clock = world.clock()
    assert world.passes(clock, 2 * CEILING * LIMIT) == "starved"
    assert clock.passed == pytest.approx(CEILING * LIMIT, abs=ABOUT)
    assert "too busy" in clock.words() and "judge again" in clock.words()
    assert "got 1.2 s of processor time in 24 s" in clock.words()


def test_a_wait_that_linux_adds_late_counts_once() -> None:
    """Linux adds a wait when it ends. The thread waits for two looks, and then sleeps for two."""
    looks = 0

    def in_turns(world: World, seconds: float) -> None:
        nonlocal looks
        looks += 1
        ended = looks % 4 == 3
        world.thread(
            1,
            ran=0.0001 if ended else 0.0,
            waited=2 * seconds if ended else 0.0,
            state="R" if looks % 4 in (1, 2) else "S",
        )

    world = World(in_turns)
    clock = world.clock()
    assert world.passes(clock, 5 * LIMIT) == "timeout"
    assert clock.passed == pytest.approx(2 * LIMIT, abs=ABOUT)


def test_one_thread_of_a_pipeline_waits_at_a_time() -> None:
    def turns(world: World, seconds: float) -> None:
        for number in (1, 2):
            world.thread(number, ran=0.01 * seconds, waited=0.49 * seconds, state="S")

    world = World(turns)
    clock = world.clock()
    assert world.passes(clock, 5 * LIMIT) is None


@pytest.mark.parametrize(("state", "expected"), [("R", None), ("S", "timeout")])
def test_without_counted_waits_the_state_decides(state: str, expected: TimeUp | None) -> None:
    world = World(lambda world, seconds: world.thread(1, ran=0.0, waited=None, state=state))
    assert world.passes(world.clock(), 2 * LIMIT) == expected


@pytest.mark.parametrize(("load", "expected"), [(True, "starved"), (False, "timeout")])
def test_where_nothing_is_known_the_load_decides(load: bool, expected: TimeUp) -> None:
    world = World(lambda world, seconds: None, load=load)
    assert world.passes(world.clock(), 2 * LIMIT) == expected


def test_a_gap_of_the_watcher_does_not_count() -> None:
    world = World(asleep)
    clock = world.clock()
    assert world.passes(clock, 1.0) is None
    world.now += 3600.0
    assert clock.look() is None, "an hour in which kmint was stopped"
    assert world.passes(clock, 2 * LIMIT) == "timeout"


def test_a_stopped_job_gets_its_time_once_more() -> None:
    world = World(lambda world, seconds: world.thread(1, state="T"))
    clock = world.clock()
    assert world.passes(clock, 4 * LIMIT) == "timeout"
    assert clock.passed == pytest.approx(2 * LIMIT, abs=ABOUT)


STAT = "4711 (a (b) c) R 1 4711 4711 0 -1 4194560 1 0 0 0 250 150 0 0 20 0 1 0 99 0 0"


def test_the_texts_of_linux_are_read() -> None:
    assert parsed(STAT, "4000000000 1500000000 17\n") == ThreadTime(
        ran=pytest.approx(4.0),  # type: ignore[arg-type]
        waited=pytest.approx(1.5),  # type: ignore[arg-type]
        state="R",
    )
    ticks = 400 / os.sysconf("SC_CLK_TCK")
    for missing in ("", "0 0 0\n"):
        assert parsed(STAT, missing) == ThreadTime(ran=ticks, waited=None, state="R")
    new = STAT.replace(" 250 150 ", " 0 0 ")
    assert parsed(new, "0 0 0") == ThreadTime(ran=0.0, waited=0.0, state="R")


def test_a_process_and_those_below_it_are_read() -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    with process, process.stdin, process.stdout:
        assert process.stdout.readline() == b"1\n"
        found: Reading = threads_of(process.pid)
        assert process.pid in found and len(found) == 2
        assert all(one.ran > 0.0 for one in found.values())
        handle = os.pidfd_open(process.pid)
        assert pid_of(handle) == process.pid
        process.stdin.write(b"\n")
    assert pid_of(handle) is None
    os.close(handle)
    assert threads_of(process.pid) == {}
