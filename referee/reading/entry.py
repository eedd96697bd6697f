"""The parameters of a candidate's `run`, as its text says."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from referee.reading.source import SourceError, parse


@dataclass(frozen=True)
class Taken:
    """The names of all parameters, and how many of them have no default."""

    names: tuple[str, ...]
    needed: int


def parameters_of_run(source: str) -> Taken | None:
    """The parameters of the last `run` at the top level; None where there is none, or it takes any
    number of arguments.
    """
    try:
        tree = parse(source)
    except SourceError:
        return None
    found = [
        node.args for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "run"
    ]
    if not found or found[-1].vararg or found[-1].kwarg:
        return None
    positional = [*found[-1].posonlyargs, *found[-1].args]
    named = found[-1].kwonlyargs
    needed = (
        len(positional)
        - len(found[-1].defaults)
        + sum(default is None for default in found[-1].kw_defaults)
    )
    return Taken(tuple(one.arg for one in (*positional, *named)), needed)
