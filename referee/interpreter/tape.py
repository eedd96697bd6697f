"""One program's operations, kept so that the next programs need not run the kernel's Python again, only what it computes.

For a small block, Triton's Python around an operation takes many times as long as its numbers. `recording.py` makes tapes, and says when
a program may be played from one. Runs in the interpreter worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Step:
    """A call of `function` with `given`, at some positions of which go values of places, or lists of them; results go to places, too."""

    function: Callable[..., Any]
    given: Sequence[Any]
    single: Sequence[tuple[int, int]]
    several: Sequence[tuple[int, Sequence[int]]]
    results: Sequence[int]

    def used(self) -> Iterator[int]:
        """The places whose values are given."""
        yield from (place for _, place in self.single)
        for _, some in self.several:
            yield from some


@dataclass(frozen=True)
class Tape:
    """The operations of a program. `start` holds constants at their places; `pointers` are the places of the pointers it is given."""

    steps: Sequence[Step]
    start: Sequence[Any]
    pointers: Sequence[int]

    def play(self, pointers: Sequence[Any]) -> None:
        """Do the same for the program that runs now. Raises what an operation raises."""
        places = list(self.start)
        for place, pointer in zip(self.pointers, pointers, strict=True):
            places[place] = pointer
        for step in self.steps:
            given = list(step.given)
            for position, place in step.single:
                given[position] = places[place]
            for position, some in step.several:
                given[position] = [places[place] for place in some]
            found = step.function(*given)
            if step.results:
                for place, part in zip(step.results, found if type(found) is tuple else (found,), strict=True):
                    places[place] = part


def compact(steps: Sequence[Step], start: Sequence[Any], pointers: Sequence[int]) -> Tape:
    """The tape of steps of which each has places of its own for its results, with as few places as will do.

    A value that is used no more gives its place to another, so that a program takes no more memory than when it is run.
    """
    last = {place: number for number, step in enumerate(steps) for place in step.used()}
    fixed = dict.fromkeys([*pointers, *(place for place, constant in enumerate(start) if constant is not None)])
    moved = {place: number for number, place in enumerate(fixed)}
    free, count = list[int](), len(fixed)
    found = []
    for number, step in enumerate(steps):
        single = [(position, moved[place]) for position, place in step.single]
        several = [(position, [moved[place] for place in some]) for position, some in step.several]
        free += {moved[place] for place in step.used() if last[place] == number and place not in fixed}
        for place in step.results:
            if not free:
                free.append(count)
                count += 1
            moved[place] = free.pop()
        free += {moved[place] for place in step.results if place not in last}
        found.append(Step(step.function, step.given, single, several, [moved[place] for place in step.results]))
    return Tape(found, [*(start[place] for place in fixed), *([None] * (count - len(fixed)))], [moved[place] for place in pointers])
