"""The cached functions of a candidate's file, so that a later call of `run` is not answered from what an earlier one put there.

A function under `functools.lru_cache` that asks whether gradients are on keeps the first answer. Runs in the trace worker.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Caches:
    """The cached functions that a module of this name makes while `noted` lasts."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._made: list[Any] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Replace `functools.lru_cache`, which `functools.cache` calls too, by one that notes what it makes."""
        original: Callable[..., Any] = functools.lru_cache

        def lru_cache(maxsize: Any = 128, typed: bool = False) -> Any:
            made = original(maxsize, typed)
            return self._note(made) if callable(maxsize) else lambda function: self._note(made(function))

        functools.lru_cache = lru_cache
        try:
            yield
        finally:
            functools.lru_cache = original

    def clear(self) -> None:
        """Forget what all of them remember."""
        for cached in self._made:
            cached.cache_clear()

    def _note(self, cached: Any) -> Any:
        if getattr(cached, "__module__", None) == self._module:
            self._made.append(cached)
        return cached
