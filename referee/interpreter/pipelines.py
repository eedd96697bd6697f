"""Which loops of a kernel the compiler pipelines: it may make their loads turns ahead of what stands before them.

A `for` is pipelined in the stages of `tl.range(..., num_stages=...)`; where these are not given, the loads that feed a `tl.dot` are, in
the stages of the launch (Triton's documentation of `tl.range`). Volatile loads are moved as others are. A `tl.debug_barrier()` in the
loop keeps the compiler from it, also one in a helper that is inlined, and so does another loop that waits for other programs; a barrier
in a `noinline` helper does not (read in TTGIR of triton 3.6 and 3.7). Limits: other loops in the loop are held to be unrolled; a loop
with `tl.dot` is held to be pipelined whatever the launch says, and not where only a helper has the `tl.dot`; loads under an `if` stay
where they are, and are held to be moved.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Sequence


def inlined_barriers(functions: Iterable[ast.FunctionDef]) -> frozenset[str]:
    """The names of the functions a call of which keeps a loop from being pipelined."""
    inlined = [function for function in functions if "noinline" not in ast.unparse(function.decorator_list[0])]
    found: frozenset[str] = frozenset()
    while more := frozenset(function.name for function in inlined if _waits(function.body, found)) - found:
        found |= more
    return found


def stages(loop: ast.For, barriers: frozenset[str]) -> ast.expr | None:
    """In how many stages a loop may be pipelined, the constant None being the launch's; None if it is not. Functions bring `barriers`."""
    if not isinstance(loop.iter, ast.Call) or _name(loop.iter) not in ("range", "tl.range") or _waits(loop.body, barriers):
        return None
    given = [*loop.iter.args[3:4], *(keyword.value for keyword in loop.iter.keywords if keyword.arg == "num_stages")]
    if given:
        return copy.deepcopy(given[0])
    return ast.Constant(None) if {"tl.dot", "tl.dot_scaled"}.intersection(map(_name, _calls(loop.body))) else None


def _waits(body: Sequence[ast.AST], barriers: frozenset[str]) -> bool:
    spins = [_name(call) for loop in _parts(body) if isinstance(loop, ast.While) for call in _calls([loop.test])]
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
