"""Facts from TTGIR, Triton's last form of a kernel before machine code.

They are atomics whose result is unused, and addresses that become integers. Triton makes no thread
wait for such atomics (its lowering of `tt.atomic_rmw` and `tt.atomic_cas`). The kernel's text does
not show this, because the compiler drops unneeded values first. The module takes the text that MLIR
prints, with locations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

NOWHERE = 0
"""Stands for a line that the text does not name."""

_FUNCTION = re.compile(r"^\s*tt\.func\b", re.MULTILINE)
_ATOMIC = re.compile(r"^\s*(?:(%[\w$.-]+) = )?\"?tt\.atomic_(?:rmw|cas|poll)\b(.*)$", re.MULTILINE)
_LOCATION = re.compile(r"^(#loc\d*) = loc\((.*)\)\s*$", re.MULTILINE)
_NAMED = re.compile(r"#loc\d*")
_USED_AT = re.compile(r"\bloc\((#loc\d*)\)\s*$")
_LINE = re.compile(r'"([^"]*)":(\d+):\d+')


def takes_addresses(text: str) -> bool:
    """True if a pointer becomes an integer. A user's addresses differ from the judge's."""
    return "tt.ptr_to_int" in text


def unread_atomics(text: str, file: str) -> tuple[int, ...]:
    """Lines of the source `file`, counted from 1, or NOWHERE, of atomics with an unused result."""
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
    told = locations.get(name, "")
    for path, line in _LINE.findall(told):
        if path == file:
            return int(line)
    # For a call, the location in the callee comes first.
    for inner in _NAMED.findall(told):
        if line := _line(
            inner, {one: what for one, what in locations.items() if one != name}, file
        ):
            return line
    return NOWHERE
