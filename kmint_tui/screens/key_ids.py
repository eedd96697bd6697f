"""The ids of all keys that can be rebound: of the application, its screens and their parts.
Importing all of them takes a moment.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from importlib import import_module
from inspect import getmembers, isclass
from pkgutil import iter_modules
from types import ModuleType

from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode

from kmint_tui import screens, widgets


def key_ids(app: type[App[int]]) -> frozenset[str]:
    """Every id under which a key can be rebound."""
    modules = [
        import_module(f"{package.__name__}.{found.name}")
        for package in (screens, widgets)
        for found in iter_modules(package.__path__)
    ]
    kinds = [app, *(kind for module in modules for kind in _nodes(module))]
    return frozenset(
        binding.id
        for kind in kinds
        for binding in kind.BINDINGS
        if isinstance(binding, Binding) and binding.id
    )


def unknown_keys(chosen: Mapping[str, str], app: type[App[int]]) -> tuple[str, ...]:
    """What is wrong with the rebound keys, a line for each id that does not exist."""
    known = key_ids(app)
    lines = []
    for identity in chosen:
        if identity not in known:
            near = difflib.get_close_matches(identity, known, n=1)
            lines.append(
                f"no key has the id {identity!r}"
                + (f"; did you mean {near[0]!r}?" if near else "; ? shows the ids")
            )
    return tuple(lines)


def _nodes(module: ModuleType) -> Iterator[type[DOMNode]]:
    for _, kind in getmembers(module, isclass):
        if issubclass(kind, DOMNode) and kind.__module__ == module.__name__:
            yield kind
