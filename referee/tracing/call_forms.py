"""How `run` can be called: with its arguments by position, as the judge does, or some of them by their names, as users may.

Runs in the trace worker.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any


def named(run: Callable[..., Any], names: Sequence[str]) -> list[int]:
    """How many of the last arguments, which have these names, can be given by name where Python may then bind something else.

    A function with as many plain parameters, none of which has a default, binds the same whichever way.
    """
    signature = inspect.signature(run, follow_wrapped=False)
    plain = [one for one in signature.parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty]
    if len(plain) == len(signature.parameters) == len(names):
        return []
    return [count for count in range(1, len(names) + 1) if _binds(signature, names, count)]


def _binds(signature: inspect.Signature, names: Sequence[str], count: int) -> bool:
    positional = len(names) - count
    try:
        signature.bind(*names[:positional], **{name: name for name in names[positional:]})
    except TypeError:
        return False
    return True
