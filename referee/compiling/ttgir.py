"""What only a compiled kernel tells, by Triton's last form of it before machine code (TTGIR): atomics whose result nothing reads, and
addresses that are taken for numbers.

For such atomics Triton lets no thread wait (its lowering of `tt.atomic_rmw` and `tt.atomic_cas`), whatever the kernel's text looks like:
what a value is not needed for, the compiler has dropped by then. Takes the text that MLIR prints, with locations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

NOWHERE = 0
"""In place of a line that the text does not tell."""

_FUNCTION = re.compile(r"^\s*tt\.func\b", re.MULTILINE)
_ATOMIC = re.compile(r"^\s*(?:(%[\w$.-]+) = )?\"?tt\.atomic_(?:rmw|cas|poll)\b(.*)$", re.MULTILINE)
_LOCATION = re.compile(r"^(#loc\d*) = loc\((.*)\)\s*$", re.MULTILINE)
_NAMED = re.compile(r"#loc\d*")
_USED_AT = re.compile(r"\bloc\((#loc\d*)\)\s*$")
_LINE = re.compile(r'"([^"]*)":(\d+):\d+')


def takes_addresses(text: str) -> bool:
    """True where a pointer becomes an integer: where tensors lie, and how far apart, differs between the judge's memory and a user's."""
    return "tt.ptr_to_int" in text


def unread_atomics(text: str, file: str) -> tuple[int, ...]:
    """Lines of the source `file`, from one on, or NOWHERE."""
    locations = {name: told for name, told in _LOCATION.findall(text)}
    found = set()
    for function in _FUNCTION.split(text)[1:]:
        for atomic in _ATOMIC.finditer(function):
            result = atomic[1]
            if result is None or len(re.findall(rf"{re.escape(result)}(?![\w$.-])", function)) == 1:
                place = _USED_AT.search(atomic[2])
                found.add(_line(place[1] if place else "", locations, file))
    return tuple(sorted(found))


def _line(name: str, locations: Mapping[str, str], file: str) -> int:
    """Where in the file an operation stands, or the function of the file that it is in."""
    told = locations.get(name, "")
    for path, line in _LINE.findall(told):
        if path == file:
            return int(line)
    # Of a call the place in what is called comes first.
    for inner in _NAMED.findall(told):
        if line := _line(inner, {one: what for one, what in locations.items() if one != name}, file):
            return line
    return NOWHERE
