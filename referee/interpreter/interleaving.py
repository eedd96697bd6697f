"""Randomised scheduling: runs a few programs of a launch at a time and switches at atomic
operations.

Programs that run one after the other show one order of their atomics only. In that order a program
that takes a ticket without waiting looks correct by chance. So a few programs begin before the
first has ended, each in its own thread, and one thread runs at a time. A seed decides which program
continues. Programs whose first atomic had the same address in an earlier run begin next to each
other, because they wait for each other. One program of each launch stalls while others end, as if
it were far behind or held a lock.

Limits: the scheduler does not try every order. Programs switch at atomics and volatile loads only.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

MAX_CONCURRENT_PROGRAMS = 4
"""Number of programs that have begun and not ended, without the stalled one."""
STALL_RANGE, MAX_IDLE_TURNS = (1, 4), 1000
"""Range of the pause at which the slow program stalls; maximum number of idle turns of the others,
with no program ending, before it resumes.
"""

Program = tuple[int, ...]


class _ProgramThread:
    """One program in its own thread; it runs only between `resume` and its next `wait`."""

    def __init__(self, body: Callable[[], None]) -> None:
        self.ended = False
        self.error: Exception | None = None
        self._go, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, args=(body,), daemon=True).start()

    def _run(self, body: Callable[[], None]) -> None:
        self._go.acquire()
        try:
            body()
        except Exception as error:
            self.error = error
        self.ended = True
        self._waits.release()

    def resume(self) -> None:
        self._go.release()
        self._waits.acquire()

    def wait(self) -> None:
        self._waits.release()
        self._go.acquire()


class InterleavingScheduler:
    """Runs programs interleaved, in an order drawn from `seed`."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._running: _ProgramThread | None = None

    def pause(self) -> None:
        """Lets a drawn program continue, if a running program calls it."""
        if self._running:
            self._running.wait()

    def run(
        self,
        programs: Sequence[Program],
        body: Callable[[], None],
        switch: Callable[[int, Program], None],
    ) -> None:
        """Runs `body` of every program to its end.

        `switch` is called with the position and the program whenever one begins or resumes. Raises
        the exception of the first program that fails; the other programs then never end.
        """
        waiting = enumerate(programs)
        begun: dict[_ProgramThread, tuple[int, Program]] = {}
        slow, pauses = self._draw.randrange(max(1, len(programs))), self._draw.randint(*STALL_RANGE)
        stopped: _ProgramThread | None = None
        patience = MAX_IDLE_TURNS
        while self._fill(begun, waiting, body, MAX_CONCURRENT_PROGRAMS + bool(stopped)):
            others = [turn for turn in begun if turn is not stopped]
            turn = (
                self._draw.choice(others)
                if others and patience
                else stopped or self._draw.choice(others)
            )
            if turn is stopped:
                stopped, pauses = None, 0
            switch(*begun[turn])
            self._running = turn
            turn.resume()
            self._running = None
            if turn.error:
                raise turn.error
            if turn.ended:
                del begun[turn]
            elif begun[turn][0] == slow and pauses:
                pauses -= 1
                stopped = None if pauses else turn
            patience = MAX_IDLE_TURNS if turn.ended or not stopped else patience - 1

    def _fill(
        self,
        begun: dict[_ProgramThread, tuple[int, Program]],
        waiting: Iterator[tuple[int, Program]],
        body: Callable[[], None],
        most: int,
    ) -> bool:
        while len(begun) < most and (following := next(waiting, None)):
            begun[_ProgramThread(body)] = following
        return bool(begun)


def group_by_first_atomic(programs: Iterable[Program], met: Mapping[Program, int]) -> list[Program]:
    """Sorts programs by the address of their first atomic (`met`), or before all others."""
    return sorted(programs, key=lambda program: met.get(program, -1))
