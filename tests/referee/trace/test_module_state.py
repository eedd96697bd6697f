"""What a file keeps between calls shows, wherever the file itself keeps it."""

from __future__ import annotations

from collections import deque
from types import ModuleType
from typing import Any

import pytest

from referee.tracing.module_state import changed, state_of

OWN = "kernel_under_test"


def module(**names: Any) -> ModuleType:
    made = ModuleType(OWN)
    vars(made).update(names)
    return made


class Counter:
    __module__ = OWN

    def __init__(self) -> None:
        self.n = 0


class Emptied(dict[str, Any]):
    __module__ = OWN

    def items(self) -> Any:
        """Shows nothing."""
        return ()


def with_default(values: list[int] = []) -> None:  # noqa: B006
    """Keeps a list in its default."""


def closed_over(values: list[int]) -> Any:
    return lambda: values


HELD: list[int] = []
COUNTED = Counter()

CHANGES: dict[str, tuple[Any, Any]] = {
    "a list in a dict in a tuple": (({"a": []},), lambda value: value[0]["a"].append(1)),
    "a deque": (deque(), lambda value: value.append(1)),
    "a number of another type": ({"a": 1}, lambda value: value.update(a=True)),
    "an object": (Counter(), lambda value: setattr(value, "n", 1)),
    "a class": (Counter, lambda value: setattr(value, "seen", 1)),
    "a function's default": (with_default, lambda value: value.__defaults__[0].append(1)),
    "a function's attribute": (with_default, lambda value: setattr(value, "seen", 1)),
    "a closure": (closed_over(HELD), lambda value: HELD.append(1)),
    "a bound method": (COUNTED.__init__, lambda value: setattr(COUNTED, "n", COUNTED.n + 1)),  # type: ignore[misc]
    "a dict that hides": (Emptied(), lambda value: value.update(a=1)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_anywhere_below_a_name_shows(name: str) -> None:
    value, change = CHANGES[name]
    file = module(KEPT=value, other=[1, float("nan")])
    before = state_of(file)
    assert changed(before, state_of(file)) is None
    change(value)
    assert changed(before, state_of(file)) == "KEPT"


def test_new_and_rebound_names_show() -> None:
    file = module(a=1)
    before = state_of(file)
    vars(file)["b"] = 2
    assert changed(before, state_of(file)) == "b"
    vars(file)["a"] = 3
    assert changed(before, state_of(file)) == "a"


def test_a_warning_leaves_nothing_behind() -> None:
    file = module(a=1)
    before = state_of(file)
    vars(file)["__warningregistry__"] = {"version": 1, ("text", UserWarning, 3): True}
    assert changed(before, state_of(file)) is None


def test_an_object_that_holds_itself_ends() -> None:
    ring: list[Any] = []
    ring.append(ring)
    file = module(KEPT=ring)
    assert changed(state_of(file), state_of(file)) is None
