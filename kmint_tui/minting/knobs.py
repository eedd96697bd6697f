"""Finds the launch constants of a kernel's source, and writes other values in their places.

A launch is a call `kernel[grid](...)` of a @triton.jit function that the file defines. Its launch
constants are `num_warps`, `num_stages`, and the powers of two that reach its constexpr parameters.
Such a power stands in the call, or in the only assignment of the name that the call passes.

A new value replaces the constant, and an equal number in the grid of the same call. Every other
character stays. The referee judges whether the changed kernel is still right. The search leaves out
kernels with separate configurations (@triton.autotune, @triton.heuristics).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kmint_tui.smith.canonical import parse

LEAST_BLOCK, MOST_BLOCK = 16, 32768
WARPS, STAGES = "num_warps", "num_stages"
_DEFAULTS = {WARPS: 4, STAGES: 3}

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")

Place = tuple[int, int]
"""Byte offsets of a replaceable text: its start and its end."""


@dataclass(frozen=True)
class Knob:
    """One launch constant.

    `launch` counts the launches of the file from 0. `value` is None for an expression; `written` is
    the source text of the value, or the default. A new value replaces the text at each of `places`.
    A constant that the call does not give has no places; `insert` is then the byte offset for a new
    keyword.
    """

    launch: int
    name: str
    value: int | None
    written: str
    places: tuple[Place, ...]
    insert: int | None = None

    @property
    def kind(self) -> Literal["block", "option"]:
        """`block` for a constexpr argument, `option` for an option of the launch."""
        return "option" if self.name in _DEFAULTS else "block"


def knobs(source: str) -> tuple[Knob, ...]:
    """The launch constants of a kernel file, in order; empty when there are none or the text does
    not parse.
    """
    tree = parse(source)
    if tree is None:
        return ()
    kernels = _kernels(tree)
    text = _Text(source)
    found: list[Knob] = []
    launches = 0
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef) or function.name in kernels:
            continue
        for node in ast.walk(function):
            name = _launched(node)
            if name in kernels and isinstance(node, ast.Call):
                if (parameters := kernels[name]) is not None:
                    found += _of_launch(launches, node, parameters, (function, tree), text)
                launches += 1
    return tuple(found)


def with_values(source: str, values: Mapping[Knob, int]) -> str | None:
    """The source with new values for these knobs.

    None when the result does not parse, or when a knob in it lacks the requested value.
    """
    edits: list[tuple[int, int, str]] = []
    for knob, value in values.items():
        edits += [(start, end, str(value)) for start, end in knob.places]
        if knob.insert is not None:
            edits.append((knob.insert, knob.insert, f", {knob.name}={value}"))
    data = source.encode()
    for start, end, new in sorted(edits, key=lambda edit: edit[0], reverse=True):
        data = data[:start] + new.encode() + data[end:]
    text = data.decode()
    now = {(knob.launch, knob.name): knob.value for knob in knobs(text)}
    return (
        text
        if all(now.get((knob.launch, knob.name)) == value for knob, value in values.items())
        else None
    )


def describe(values: Mapping[Knob, int]) -> str:
    """The changes in words: "BLOCK 1024 -> 2048, num_warps 4 -> 8"."""
    return ", ".join(
        f"{knob.name} {knob.written} -> {value}"
        for knob, value in values.items()
        if value != knob.value
    )


def _kernels(tree: ast.Module) -> dict[str, list[tuple[str, bool]] | None]:
    """Parameters and whether they are constexpr, by kernel; None for a kernel with more decorators
    than @triton.jit.
    """
    found: dict[str, list[tuple[str, bool]] | None] = {}
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or not any(
            "jit" in ast.unparse(one) for one in node.decorator_list
        ):
            continue
        constexpr = [
            (each.arg, each.annotation is not None and "constexpr" in ast.unparse(each.annotation))
            for each in node.args.args
        ]
        found[node.name] = constexpr if len(node.decorator_list) == 1 else None
    return found


def _launched(node: ast.AST) -> str | None:
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Subscript)
        and isinstance(node.func.value, ast.Name)
    ):
        return node.func.value.id
    return None


def _of_launch(
    number: int,
    call: ast.Call,
    parameters: Sequence[tuple[str, bool]],
    scopes: Sequence[ast.AST],
    text: _Text,
) -> list[Knob]:
    if any(keyword.arg is None for keyword in call.keywords) or any(
        isinstance(one, ast.Starred) for one in call.args
    ):
        return []
    given = {name: value for (name, _), value in zip(parameters, call.args, strict=False)}
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    found = []
    for name, constexpr in parameters:
        if constexpr and name in given and (literal := _literal(given[name], scopes)) is not None:
            places = [text.place(literal)]
            if literal is given[name]:
                # A grid that was computed from the same number has to follow it.
                places += [
                    text.place(node)
                    for node in ast.walk(call.func)
                    if isinstance(node, ast.Constant) and node.value == literal.value
                ]
            found.append(Knob(number, name, _power(literal), text.of(literal), tuple(places)))
    end = max(
        (
            text.place(node)[1]
            for node in (*call.args, *(keyword.value for keyword in call.keywords))
        ),
        default=None,
    )
    for name, default in _DEFAULTS.items():
        value = given.get(name)
        if value is not None:
            known = (
                value.value
                if isinstance(value, ast.Constant) and type(value.value) is int
                else None
            )
            found.append(Knob(number, name, known, text.of(value), (text.place(value),)))
        elif end is not None:
            found.append(Knob(number, name, default, str(default), (), end))
    return found


def _literal(value: ast.expr, scopes: Sequence[ast.AST]) -> ast.Constant | None:
    """The block size that an argument gives: its own literal, or the literal in the only assignment
    of its name.
    """
    if isinstance(value, ast.Constant):
        return value if _power(value) else None
    if not isinstance(value, ast.Name):
        return None
    for scope in scopes:
        stored = [
            node
            for node in ast.walk(scope)
            if isinstance(node, ast.Name)
            and node.id == value.id
            and isinstance(node.ctx, ast.Store)
        ]
        if stored:
            assigned = [
                node.value
                for node in ast.walk(scope)
                if isinstance(node, ast.Assign) and node.targets == stored
            ]
            constant = assigned[0] if len(stored) == 1 and assigned else None
            return constant if isinstance(constant, ast.Constant) and _power(constant) else None
    return None


def _power(constant: ast.Constant) -> int | None:
    value = constant.value
    if type(value) is int and LEAST_BLOCK <= value <= MOST_BLOCK and value & (value - 1) == 0:
        return value
    return None


class _Text:
    """Byte offsets of nodes: Python counts columns in bytes of UTF-8."""

    def __init__(self, source: str) -> None:
        self._data = source.encode()
        self._starts = [0]
        for line in _LINE.findall(source):
            self._starts.append(self._starts[-1] + len(line.encode()))

    def place(self, node: ast.expr) -> Place:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[
            node.end_lineno - 1
        ] + node.end_col_offset

    def of(self, node: ast.expr) -> str:
        start, end = self.place(node)
        return self._data[start:end].decode()
