"""Functions of the standard library that change what outlives a call, as host code may use them: on what is its own.

They are called by names that a text can hide, so what they are given is looked at when they are called. Runs in the trace worker.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from referee.tracing.training import caller, is_torch
from referee.tracing.violation import Violations

# With "error" a user's later code would fail, and with the others every warning comes again.
_ACTIONS = ("ignore", "default", "once")


def answers(violations: Violations) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Where these functions are, and what stands in for them."""
    for name in ("simplefilter", "filterwarnings"):
        yield warnings, name, _filtering(getattr(warnings, name), violations)
    yield dataclasses, "dataclass", _making(violations)


def _filtering(original: Callable[..., None], violations: Violations) -> Callable[..., None]:
    def filtered(*args: Any, **kwargs: Any) -> None:
        action = next(iter(args), kwargs.get("action"))
        # torch's own modules ask for "always" when they are first imported.
        if action not in _ACTIONS and not (action == "always" and is_torch(caller(1))):
            allowed = ", ".join(f'"{one}"' for one in _ACTIONS)
            reason = f"`warnings.{original.__name__}` outlives the call and changes how other code runs; its action may be one of {allowed}"
            raise violations.add("state", reason)
        original(*args, **kwargs)

    return filtered


def _making(violations: Violations) -> Callable[..., Any]:
    """`dataclass`, which sets attributes of the class that it is given, as a package may do with its own."""
    original: Callable[..., Any] = dataclasses.dataclass

    def decorated(given: Any, asking: str, options: dict[str, Any]) -> Any:
        if str(getattr(given, "__module__", asking)).partition(".")[0] != asking.partition(".")[0]:
            raise violations.add("state", "`dataclass` changes the class that it is given, which is not the file's; write it above yours")
        return original(given, **options)

    def decorator(given: Any = None, /, **options: Any) -> Any:
        if given is None:
            return lambda one: decorated(one, caller(1), options)
        return decorated(given, caller(1), options)

    return decorator
