"""Some programs of a launch at a time, in turns: before and after every atomic operation another one may go on.

Programs that run one after the other show one order of their atomics only, and in that order much seems settled by chance: one that
counts up a ticket which nobody waits for looks as if it had been let in. So a few programs are begun before the first has ended, each
in a thread of its own, of which one runs at any time; which goes on is drawn, from a seed. Programs whose first atomic was at the same
address in an earlier run of the launch are begun one after the other, because it is they that wait for each other. One program of each
launch is stopped for as long as others come to their ends: far behind all, or with a lock in its hands. Limits: not every order is
tried, and programs change places at atomics and volatile loads only.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

AT_ONCE = 4
# At which of its pauses the slow one stops, and for how many turns of others of which none ends.
STOPS, PATIENCE = (1, 4), 1000

Program = tuple[int, ...]


class _Turn:
    """One program in a thread of its own, which runs only between `go_on` and its next `wait`."""

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

    def go_on(self) -> None:
        """Let the program run up to where it waits, or its end."""
        self._go.release()
        self._waits.acquire()

    def wait(self) -> None:
        """Called by the program: let others run."""
        self._waits.release()
        self._go.acquire()


class Turns:
    """Runs programs in turns. `switch` is called whenever one begins or goes on, with its position among those begun."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._running: _Turn | None = None

    def pause(self) -> None:
        """Called by a running program: whichever is drawn goes on. Elsewhere nothing happens."""
        if self._running:
            self._running.wait()

    def run(self, programs: Sequence[Program], body: Callable[[], None], switch: Callable[[int, Program], None]) -> None:
        """Every program's `body` to its end. Raises what a program raises; those that had begun by then never end."""
        waiting = enumerate(programs)
        begun: dict[_Turn, tuple[int, Program]] = {}
        slow, pauses = self._draw.randrange(max(1, len(programs))), self._draw.randint(*STOPS)
        stopped: _Turn | None = None
        patience = PATIENCE
        while self._fill(begun, waiting, body, AT_ONCE + bool(stopped)):
            others = [turn for turn in begun if turn is not stopped]
            turn = self._draw.choice(others) if others and patience else stopped or self._draw.choice(others)
            if turn is stopped:
                stopped, pauses = None, 0
            switch(*begun[turn])
            self._running = turn
            turn.go_on()
            self._running = None
            if turn.error:
                raise turn.error
            if turn.ended:
                del begun[turn]
            elif begun[turn][0] == slow and pauses:
                pauses -= 1
                stopped = None if pauses else turn
            patience = PATIENCE if turn.ended or not stopped else patience - 1

    def _fill(
        self, begun: dict[_Turn, tuple[int, Program]], waiting: Iterator[tuple[int, Program]], body: Callable[[], None], most: int
    ) -> bool:
        while len(begun) < most and (following := next(waiting, None)):
            begun[_Turn(body)] = following
        return bool(begun)


def together(programs: Iterable[Program], met: Mapping[Program, int]) -> list[Program]:
    """Those with the same first address of an atomic next to each other, in the order of `met`'s addresses; the others first."""
    return sorted(programs, key=lambda program: met.get(program, -1))
