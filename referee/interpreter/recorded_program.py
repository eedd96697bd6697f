"""The recorded operations of one program, which replay for other programs without the kernel's
Python.

For a small block, Triton's Python around an operation takes many times as long as the computation.
`recorder` records programs and decides when a recording may replay. Runs in the interpreter worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RecordedCall:
    """A call of `function` with the arguments `given`; its results go to places.

    `name` identifies the function. `single` lists (argument position, place): the place's value is
    the argument. `several` lists (argument position, places): a list of values is the argument.
    `shapes` are the shapes of the results in the recorded program.
    """

    name: str
    function: Callable[..., Any]
    given: Sequence[Any]
    single: Sequence[tuple[int, int]] = ()
    several: Sequence[tuple[int, Sequence[int]]] = ()
    results: Sequence[int] = ()
    shapes: Sequence[tuple[int, ...]] = ()

    def used(self) -> Iterator[int]:
        """The places whose values are arguments."""
        yield from (place for _, place in self.single)
        for _, some in self.several:
            yield from some

    def filled(self, places: Sequence[Any]) -> list[Any]:
        """The arguments, with the values of these places."""
        given = list(self.given)
        for position, place in self.single:
            given[position] = places[place]
        for position, some in self.several:
            given[position] = [places[place] for place in some]
        return given


@dataclass(frozen=True)
class RecordedProgram:
    """The operations of a program.

    `start` holds constants at their places. `arguments` are the places of varying arguments.
    """

    steps: Sequence[RecordedCall]
    start: Sequence[Any]
    arguments: Sequence[int]

    def replay(self, arguments: Sequence[Any]) -> None:
        """Does the same for the program that runs now. Raises the exceptions of the operations."""
        places = self.places(arguments)
        for step in self.steps:
            found = step.function(*step.filled(places))
            if step.results:
                for place, part in zip(
                    step.results, found if type(found) is tuple else (found,), strict=True
                ):
                    places[place] = part

    def places(self, arguments: Sequence[Any]) -> list[Any]:
        """The values of the places before the first step."""
        places = list(self.start)
        for place, argument in zip(self.arguments, arguments, strict=True):
            places[place] = argument
        return places


def compact(
    steps: Sequence[RecordedCall], start: Sequence[Any], arguments: Sequence[int]
) -> RecordedProgram:
    """The recorded program of these steps, with as few places as possible.

    Each step must have separate places for its results. A value that is no longer used gives up its
    place, so a replay takes no more memory than the original run.
    """
    last = {place: number for number, step in enumerate(steps) for place in step.used()}
    fixed = dict.fromkeys(
        [*arguments, *(place for place, constant in enumerate(start) if constant is not None)]
    )
    moved = {place: number for number, place in enumerate(fixed)}
    free, count = list[int](), len(fixed)
    found = []
    for number, step in enumerate(steps):
        single = [(position, moved[place]) for position, place in step.single]
        several = [(position, [moved[place] for place in some]) for position, some in step.several]
        free += {
            moved[place] for place in step.used() if last[place] == number and place not in fixed
        }
        for place in step.results:
            if not free:
                free.append(count)
                count += 1
            moved[place] = free.pop()
        free += {moved[place] for place in step.results if place not in last}
        found.append(
            replace(
                step,
                single=single,
                several=several,
                results=[moved[place] for place in step.results],
            )
        )
    return RecordedProgram(
        found,
        [*(start[place] for place in fixed), *([None] * (count - len(fixed)))],
        [moved[place] for place in arguments],
    )
