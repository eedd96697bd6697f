"""Finds loops that the compiler pipelines: it may issue their loads iterations early.

`tl.range(..., num_stages=...)` pipelines a `for` loop in that many stages. Without `num_stages`,
the loads that feed a `tl.dot` are pipelined in the launch's stages (Triton's documentation of
`tl.range`). Volatile loads move as others do. A `tl.debug_barrier()` in the loop prevents
pipelining, also one in an inlined helper, and so does an inner loop that waits for other programs.
A barrier in a `noinline` helper does not (read in TTGIR of Triton 3.6 and 3.7). Limits: inner loops
count as unrolled. A loop with `tl.dot` counts as pipelined regardless of the launch, and as not
pipelined if only a helper contains the `tl.dot`. Loads under an `if` count as moved, although they
stay.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Sequence


def inlined_barriers(functions: Iterable[ast.FunctionDef]) -> frozenset[str]:
    """The names of functions whose calls keep a loop from being pipelined."""
    inlined = [
        function
        for function in functions
        if "noinline" not in ast.unparse(function.decorator_list[0])
    ]
    found: frozenset[str] = frozenset()
    while (
        more := frozenset(function.name for function in inlined if _waits(function.body, found))
        - found
    ):
        found |= more
    return found


def stages(loop: ast.For, barriers: frozenset[str]) -> ast.expr | None:
    """The number of stages in which a loop may be pipelined, as an expression; None if it is not
    pipelined.

    The constant None stands for the launch's number. Calls of functions in `barriers` act as
    barriers.
    """
    if (
        not isinstance(loop.iter, ast.Call)
        or _name(loop.iter) not in ("range", "tl.range")
        or _waits(loop.body, barriers)
    ):
        return None
    given = [
        *loop.iter.args[3:4],
        *(keyword.value for keyword in loop.iter.keywords if keyword.arg == "num_stages"),
    ]
    if given:
        return copy.deepcopy(given[0])
    return (
        ast.Constant(None)
        if {"tl.dot", "tl.dot_scaled"}.intersection(map(_name, _calls(loop.body)))
        else None
    )


def _waits(body: Sequence[ast.AST], barriers: frozenset[str]) -> bool:
    spins = [
        _name(call)
        for loop in _parts(body)
        if isinstance(loop, ast.While)
        for call in _calls([loop.test])
    ]
    if any(name == "tl.load" or name.startswith("tl.atomic_") for name in spins):
        return True
    return any(name == "tl.debug_barrier" or name in barriers for name in map(_name, _calls(body)))


def _parts(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        yield from ast.walk(node)


def _calls(nodes: Sequence[ast.AST]) -> list[ast.Call]:
    return [node for node in _parts(nodes) if isinstance(node, ast.Call)]


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func)
