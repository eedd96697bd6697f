"""Messages about memory accesses that end a launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


def describe_misaligned(program: Sequence[int], name: str, itemsize: int, verb: str) -> str:
    """The message for an access to the buffer `name`; `verb` is the program's action."""
    what = f"{itemsize} bytes of `{name}` at an address that is no multiple of {itemsize}"
    return (
        f"program {tuple(program)} {verb} {what}, which a GPU cannot do: use a pointer of "
        "the tensor's own type, or aligned offsets"
    )


def describe_outside(
    program: Sequence[int],
    buffers: Sequence[tuple[int, int, str]],
    bad: Array,
    verb: str,
) -> str:
    """The message for accesses at the addresses `bad`, which lie in none of the buffers.

    `buffers` lists (first address, end address, name).
    """
    low, high = int(bad.min()), int(bad.max())
    distances = [
        (abs(low - end) if low >= end else abs(start - high), index, low >= end)
        for index, (start, end, _) in enumerate(buffers)
    ]
    _, index, after = min(distances) if distances else (0, -1, True)
    where = (
        f"{'past the end' if after else 'before the start'} of `{buffers[index][2]}`"
        if index >= 0
        else "outside every buffer"
    )
    lanes = "1 element" if bad.size == 1 else f"{bad.size} elements"
    return f"program {tuple(program)} {verb} {lanes} {where}"


def describe_race(first: Sequence[int] | None, second: Sequence[int], name: str) -> str:
    """The message for a race on the buffer `name`; `first` is None for threads of one program."""
    if first is None:
        use = f"stores to `{name}` and another thread of it uses the element, before or after"
        return f"program {tuple(second)} {use}: add tl.debug_barrier() between"
    helps = (
        "use atomics on it, or add tl.debug_barrier() before a ticket or lock that is waited for"
    )
    return (
        f"programs {tuple(first)} and {tuple(second)} use the same element of `{name}`, and "
        f"one changes it: {helps}"
    )


def describe_lost_store(program: Sequence[int], name: str) -> str:
    """The message for lanes of one store that put different values into one element of `name`."""
    lanes = f"two lanes of program {tuple(program)}"
    return f"{lanes} store different values to one element of `{name}`"
