"""Notes the outcomes of the decisions on sizes while `run` is called.

The host code is compiled with a call around each decision (`reading/size_decisions.py`). Runs in
the trace worker.
"""

from __future__ import annotations

import ast
import builtins
import secrets
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

from referee.reading.size_decisions import FALSE, TRUE, Place, decisions, place_of
from referee.reading.source import parse


class Taken:
    """The outcomes of the decisions of one file since `begin`, as bits (FALSE, TRUE)."""

    def __init__(self) -> None:
        self._outcomes: list[int] = []

    def begin(self) -> None:
        """Forget all outcomes."""
        self._outcomes = [0] * len(self._outcomes)

    def outcomes(self) -> list[int]:
        """The outcomes of each decision."""
        return self._outcomes

    def noting(self, source: str, path: str, module: ModuleType) -> CodeType:
        """Compile the file for `module`, whose builtins get the functions that note."""
        places = {one.place: number for number, one in enumerate(decisions(source))}
        self._outcomes = [0] * len(places)
        tree = parse(source)
        if places:
            truth, choice = (f"_{secrets.token_hex(8)}" for _ in range(2))
            module.__dict__["__builtins__"] = {
                **vars(builtins),
                truth: self._truth,
                choice: self._choice,
            }
            tree = ast.fix_missing_locations(_Noting(places, truth, choice).visit(tree))
        return compile(tree, path, "exec", dont_inherit=True)

    def _truth(self, number: int, value: Any) -> Any:
        self._outcomes[number] |= TRUE if value else FALSE
        return value

    def _choice(self, number: int, choose: Callable[..., Any], *given: Any) -> Any:
        value = choose(*given)
        self._outcomes[number] |= TRUE if value == given[0] else 0
        self._outcomes[number] |= FALSE if value in given[1:] else 0
        return value


class _Noting(ast.NodeTransformer):
    def __init__(self, places: dict[Place, int], truth: str, choice: str) -> None:
        self._places, self._names = places, (truth, choice)

    def visit(self, node: ast.AST) -> Any:
        number = self._places.get(place_of(node)) if isinstance(node, ast.expr) else None
        self.generic_visit(node)
        if number is None or not isinstance(node, ast.expr):
            return node
        truth, choice = self._names
        match node:
            case ast.Call(func=ast.Name(id="min" | "max") as choose, args=given, keywords=[]):
                name, noted = choice, [choose, *given]
            case _:
                name, noted = truth, [node]
        call = ast.Call(ast.Name(name, ast.Load()), [ast.Constant(number), *noted], [])
        return ast.copy_location(call, node)
