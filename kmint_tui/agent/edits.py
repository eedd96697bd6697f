"""Small edits of a rejected kernel that a program can propose.

An edit is a guess. The referee judges each one for `explanation.py`, which shows only edits that
get further than the original kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import TypeGuard

from kmint_tui.smith.canonical import parse

MOST_EDITS = 4

Change = tuple[int, int, int, str]
"""Line, first and last column, and the text that takes their place."""


def proposals(source: str, guard: str | None, arguments: Sequence[str]) -> list[str]:
    """Sources with one edit each that may satisfy the guard, most likely first. Empty if no edit is
    known.
    """
    tree = parse(source)
    if tree is None:
        return []
    found: list[str] = []
    for edit in _EDITS.get(guard or "", ()):
        for changes in edit(tree, source, arguments):
            made = _applied(source, changes)
            if changes and made not in (source, *found) and parse(made) is not None:
                found.append(made)
    return found[:MOST_EDITS]


def _entry(tree: ast.Module, source: str, arguments: Sequence[str]) -> Iterator[list[Change]]:
    """The only function of the host that launches becomes `run`."""
    plain = [
        one for one in tree.body if isinstance(one, ast.FunctionDef) and not one.decorator_list
    ]
    if any(one.name == "run" for one in plain):
        return
    launching = [
        one
        for one in plain
        if any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)
            for node in ast.walk(one)
        )
    ]
    if len(launching) == 1:
        name = launching[0].name
        yield [(launching[0].lineno, *_span(source, launching[0].lineno, f"def {name}"), "def run")]


def _masks(tree: ast.Module, source: str, arguments: Sequence[str]) -> Iterator[list[Change]]:
    """Gives loads and stores without a mask one that the kernel uses, or one from a name that
    compares offsets.
    """
    for kernel in _kernels(tree):
        accesses = [node for node in ast.walk(kernel) if _is_access(node)]
        bare = [node for node in accesses if _mask(node) is None]
        masks = [mask for node in accesses if (mask := _mask(node)) is not None]
        compared = [
            node.targets[0].id
            for node in ast.walk(kernel)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Compare)
        ]
        for mask in dict.fromkeys((*masks, *compared)):
            yield [_before_end(node, f", mask={mask}") for node in bare]


def _outputs(tree: ast.Module, source: str, arguments: Sequence[str]) -> Iterator[list[Change]]:
    """Allocates an output like the first argument instead of with an explicit dtype or shape."""
    first = arguments[0] if arguments else "x"
    found = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("torch.empty", "torch.zeros")
            and node.lineno == node.end_lineno
        ):
            assert node.end_col_offset is not None
            like = f"{ast.unparse(node.func)}_like({first})"
            found.append((node.lineno, node.col_offset, node.end_col_offset, like))
    yield found


def _float32(tree: ast.Module, source: str, arguments: Sequence[str]) -> Iterator[list[Change]]:
    """Every load becomes float32, and masked lanes get a neutral value."""
    for kernel in _kernels(tree):
        loads = [
            node
            for node in ast.walk(kernel)
            if _is_access(node) and _function(node) == "load" and node.lineno == node.end_lineno
        ]
        converted = {
            id(node.value)
            for node in ast.walk(kernel)
            if isinstance(node, ast.Attribute) and node.attr == "to"
        }
        yield [_after(node, ".to(tl.float32)") for node in loads if id(node) not in converted]
        open_ones = [
            node
            for node in loads
            if _mask(node)
            and not any(one.arg == "other" for one in node.keywords)
            and len(node.args) < 3
        ]
        for other in ('-float("inf")', "0.0"):
            yield [_before_end(node, f", other={other}") for node in open_ones]


def _kernels(tree: ast.Module) -> list[ast.FunctionDef]:
    return [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.decorator_list]


def _is_access(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and _function(node) in ("load", "store") and bool(node.args)


def _function(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition("tl.")[2]


def _mask(node: ast.Call) -> str | None:
    named = next((one.value for one in node.keywords if one.arg == "mask"), None)
    place = 1 if _function(node) == "load" else 2
    found = named if named is not None else node.args[place] if len(node.args) > place else None
    return ast.unparse(found) if found is not None else None


def _before_end(node: ast.Call, text: str) -> Change:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset - 1, node.end_col_offset - 1, text


def _after(node: ast.Call, text: str) -> Change:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset, node.end_col_offset, text


def _span(source: str, line: int, text: str) -> tuple[int, int]:
    start = source.splitlines()[line - 1].encode().find(text.encode())
    return start, start + len(text.encode())


def _applied(source: str, changes: Sequence[Change]) -> str:
    """The source with all changes, applied from its end. Columns count bytes, as in `ast`."""
    lines = source.splitlines(keepends=True)
    for line, first, last, text in sorted(changes, reverse=True):
        old = lines[line - 1].encode()
        lines[line - 1] = (old[:first] + text.encode() + old[last:]).decode()
    return "".join(lines)


_EDITS: dict[str, Sequence[Callable[[ast.Module, str, Sequence[str]], Iterator[list[Change]]]]] = {
    "entry_point": (_entry,),
    "out_of_bounds": (_masks,),
    "guard_band": (_masks,),
    "not_deterministic": (_masks,),
    "wrong_answer": (_masks, _float32),
    "output_contract": (_outputs,),
}
