"""A copy of the user's own reference next to the kernel, so that the kernel's test can run both.

Only a plain function that needs nothing except torch is copied. Without a copy, the test says that
it does not run the kernel.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from kmint_tui.save.line_width import narrow, plain
from referee.ops import Cell

if TYPE_CHECKING:
    from referee.reference.reference import Reference

_MODULES = frozenset({"torch", "math", "typing", "collections", "__future__"})
_RECIPES = frozenset({"normal", "uniform", "around_one", "range", "index"})
_MOST_ELEMENTS = 1 << 15
_MAGNITUDES = ("given", "small", "large")
_MOST_CASES = 12


@dataclass(frozen=True)
class ReferenceCopy:
    """The text of a file with the function `name`."""

    name: str
    text: str


@dataclass(frozen=True)
class Case:
    """The inputs of one case of a test: shape, dtype, recipe and scale of every tensor; the
    numbers.
    """

    tensors: tuple[tuple[tuple[int, ...], str, str, float], ...]
    numbers: tuple[float, ...]


def reference_copy(loaded: Reference, arguments: Sequence[str]) -> ReferenceCopy | None:
    """The copy; None if the function needs other code of the reference."""
    tree = ast.parse(loaded.source)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    function = functions.get(loaded.name)
    if function is None or loaded.fixed or loaded.mutates or not _is_whole(tree):
        return None
    if [argument.arg for argument in function.args.args] != list(arguments):
        return None
    file = plain(loaded.path.name)
    head = f'"""The function that the kernel was judged by, from {file}."""'
    return ReferenceCopy(loaded.name, narrow(f"{head}\n\n{_arranged(tree, loaded.source)}"))


def small_cases(cells: Sequence[Cell]) -> tuple[Case, ...]:
    """Small cases of every example with each of its dtypes, at three magnitudes."""
    chosen: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        magnitude = cell.name.rpartition("-")[2]
        if magnitude in _MAGNITUDES and _fits(cell):
            chosen.setdefault((cell.name.partition("-")[0], magnitude), cell)
    order = sorted(chosen, key=lambda one: _MAGNITUDES.index(one[1]))
    return tuple(_case(chosen[one]) for one in order[:_MOST_CASES])


def _is_whole(tree: ast.Module) -> bool:
    """True if the text binds every name, and every module comes with torch."""
    known = set(dir(builtins))
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                origins = [getattr(node, "module", None) or name.name for name in names]
                if any(one.partition(".")[0] not in _MODULES for one in origins):
                    return False
                known |= {(name.asname or name.name).partition(".")[0] for name in names}
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                known.add(name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                known.add(name)
    loads = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return all(node.id in known for node in loads)


def _arranged(tree: ast.Module, source: str) -> str:
    """The imports by origin, and the other code with two empty lines around functions."""
    lines = source.splitlines()
    parts: dict[str, list[str]] = {"library": [], "torch": [], "constants": [], "functions": []}
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            text = ast.unparse(node)
            parts["torch" if text.split()[1].startswith("torch") else "library"].append(text)
            continue
        decorators = getattr(node, "decorator_list", [])
        begins = min([node.lineno, *(one.lineno for one in decorators)])
        text = "\n".join(lines[begins - 1 : node.end_lineno])
        defines = isinstance(node, (ast.FunctionDef, ast.ClassDef))
        parts["functions" if defines else "constants"].append(text)
    imports = [
        "\n".join(sorted(parts[origin], key=lambda line: (line.startswith("from"), line)))
        for origin in ("library", "torch")
        if parts[origin]
    ]
    head = "\n\n".join(imports)
    constants = "\n".join(parts["constants"])
    first = "\n\n".join(part for part in (head, constants) if part)
    return "\n\n\n".join(part for part in (first, *parts["functions"]) if part) + "\n"


def _fits(cell: Cell) -> bool:
    recipes = _recipes(cell)
    small = all(prod(spec.shape) <= _MOST_ELEMENTS for spec in cell.inputs)
    return small and all(one.partition(":")[0] in _RECIPES for one in recipes)


def _recipes(cell: Cell) -> list[str]:
    recipes = cell.values.split("|")
    return recipes[: len(cell.inputs)] if len(recipes) > 1 else recipes * len(cell.inputs)


def _case(cell: Cell) -> Case:
    parts = zip(cell.inputs, _recipes(cell), cell.scales, strict=True)
    tensors = tuple((spec.shape, spec.dtype, recipe, scale) for spec, recipe, scale in parts)
    return Case(tensors, tuple(scalar.value for scalar in cell.scalars))
