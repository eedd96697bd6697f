"""A small interpreter of classic BPF, enough to run a system-call filter for any machine on this
one.
"""

from __future__ import annotations

from collections.abc import Sequence

ALLOW, KILL, FAIL = 0x7FFF0000, 0x80000000, 0x00050000


def decide(
    program: Sequence[tuple[int, int, int, int]],
    architecture: int,
    number: int,
    arguments: Sequence[int] = (),
) -> int:
    """The filter's answer to one call: ALLOW, KILL, or FAIL + errno."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    words = {0: number, 4: architecture}
    for index, argument in enumerate(padded):
        words[16 + 8 * index] = argument & 0xFFFFFFFF
        words[20 + 8 * index] = argument >> 32 & 0xFFFFFFFF
    accumulator = position = 0
    while True:
        code, if_true, if_false, value = program[position]
        position += 1
        if code == 0x06:
            return value
        if code == 0x20:
            accumulator = words[value]
        elif code == 0x54:
            accumulator &= value
        else:
            holds = {
                0x15: accumulator == value,
                0x25: accumulator > value,
                0x45: bool(accumulator & value),
            }[code]
            position += if_true if holds else if_false
