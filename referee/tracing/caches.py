"""The cached functions of a candidate's file: a later call of `run` is not answered from what an earlier one put there, nor by way of it.

A function under `functools.lru_cache` may not ask whether gradients are on, for it keeps the first answer; one that returns an object keeps
what is done to it; one that is called while the file is being imported answers from what was there then, and one that changes its
arguments does so once. Runs in the trace worker. Limits: torch's objects in what is returned count by identity only; an answer
for an equal argument of another type is noticed in two orders of the cells that are traced (`tracer.py`), not at other shapes.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

from referee.tracing.kept_state import KeptObject, contents
from referee.tracing.training import Training
from referee.tracing.violation import Violations

_FILLED = (
    "the cached function `{}` is called while the file is being imported, and keeps that answer whatever becomes of what it reads;"
    " call it in `run`, or do not cache it"
)
_CHANGES = "the cached function `{}` changes an argument, which it does for the first call only; let it return numbers or a tuple"
_GIVEN = "the cached function `{}` is given something that can change: {}; give it shapes, dtypes and numbers"
_RETURNS = "the cached function `{}` returns something that can change: {}; let it return numbers or a tuple"
_ASKS = (
    "the cached function `{}` asks torch about the call that is running (gradients, autocast, compilation, streams), and keeps the answer;"
    " ask in `run`, or do not cache it"
)
_CACHED: Any = type(functools.lru_cache(lambda: None))


class Caches:
    """The cached functions that a module makes while it is imported (`noted`, `made`), and what they have returned since `clear`."""

    def __init__(self, module: ModuleType, violations: Violations, training: Training) -> None:
        self._module, self._violations, self._training = module, violations, training
        self.made: list[Any] = []
        self._returned: list[tuple[Any, tuple[object, ...]]] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Replace `functools.lru_cache`, which `functools.cache` calls too, by one that notes what it makes for the module.

        What the module has bound to it is the original again afterwards, and none remembers anything yet.
        """
        original: Callable[..., Any] = functools.lru_cache

        def lru_cache(maxsize: Any = 128, typed: bool = False) -> Any:
            if not self._is_ours(sys._getframe(1)):
                return original(maxsize, typed)
            if callable(maxsize):
                return self._note(original(128, typed), maxsize)
            return lambda function: self._note(original(maxsize, typed), function)

        functools.lru_cache = lru_cache
        try:
            yield
        finally:
            functools.lru_cache = original
            names = vars(self._module)
            names.update({name: original for name, value in names.items() if value is lru_cache})
        for cached in self.made:
            if _CACHED.cache_info(cached).currsize:
                raise self._violations.add("state", _FILLED.format(getattr(cached, "__name__", "a cached function")))

    def changed(self) -> bool:
        """True when something that a cached function returned is not what it was then."""
        return any(contents(value, self._module.__name__, tensors=False) != before for value, before in self._returned)

    def clear(self) -> None:
        """Forget what all of them remember."""
        self._returned.clear()
        for cached in self.made:
            _CACHED.cache_clear(cached)

    def _is_ours(self, caller: FrameType | None) -> bool:
        # `functools.cache` may stand between.
        frames = (caller, caller.f_back if caller else None)
        return any(frame is not None and frame.f_globals.get("__name__") == self._module.__name__ for frame in frames)

    def _note(self, caching: Callable[..., Any], function: Callable[..., Any]) -> Any:
        name = getattr(function, "__name__", "a cached function")

        def noted(*args: Any, **kwargs: Any) -> Any:
            # One object, because contents are told apart by identity too.
            given = (args, kwargs)
            before, asked = self._contents(given, name, _GIVEN), self._training.questions
            value = function(*args, **kwargs)
            if self._contents(given, name, _GIVEN) != before:
                raise self._violations.add("state", _CHANGES.format(name))
            if self._training.questions != asked:
                raise self._violations.add("state", _ASKS.format(name))
            self._returned.append((value, self._contents(value, name, _RETURNS)))
            return value

        cached = caching(functools.update_wrapper(noted, function))
        self.made.append(cached)
        return cached

    def _contents(self, value: object, name: str, told: str) -> tuple[object, ...]:
        try:
            return contents(value, self._module.__name__, tensors=False)
        except KeptObject as error:
            raise self._violations.add("state", told.format(name, str(error).partition(";")[0])) from None
