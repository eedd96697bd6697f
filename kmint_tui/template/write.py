"""A whole kernel file from a program: a kernel a stage, and the host code that launches them.

The host code takes sizes from the arguments' shapes, allocates, and launches once a stage. kmint
writes it for the kernels of a smith and of the template. `run` takes the function's arguments and
returns its results.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kmint_tui.graph.program import PLAIN, Program, Stage, Tensor
from kmint_tui.template.frame import Settings
from kmint_tui.template.structures import Structure, kernel_source, structures_of

IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n"
LIBDEVICE = "from triton.language.extra import libdevice\n"
SHORT, LONG = 1024, 16384
"""Columns: a program takes several rows up to the first, and a row in blocks beyond the second."""
NARROW = 32
"""Columns up to which a tile has more rows, so that a program has enough elements."""
_CONSTANT = re.compile(r"\bk(\d+)\b")
_STRIDED = re.compile(r"\bc \*")


def usual_structure(stage: Stage) -> tuple[Structure, Settings]:
    """The structure and settings by the rule of thumb for the stage's example shape."""
    columns = stage.example[1]
    possible = structures_of(stage)
    if "flat" in possible:
        plain = all(address == PLAIN for address in stage.addresses)
        if "tile" in possible and columns < SHORT and not plain:
            # A flat block would divide each address by the row's length.
            return "tile", Settings(rows=64, elements=2048, warps="4")
        if "pairs" in possible:
            return "pairs", Settings(block=1024, warps="4")
        wide = (
            stage.has_rows
            and columns >= SHORT
            and any(line.over in ("m", "n") for line in stage.lines)
        )
        return (
            ("grid", Settings(block=1024, warps="4"))
            if wide and "grid" in possible
            else ("flat", Settings(block=1024, warps="4"))
        )
    if not stage.has_rows or columns > LONG:
        return (
            ("loop", Settings(block=4096, warps="16"))
            if "loop" in possible
            else ("row", Settings(warps="16"))
        )
    if any(_STRIDED.search(address) for address in stage.addresses) and "tile" in possible:
        return "tile", Settings(rows=64 if columns > NARROW else 512, elements=16384, warps="8")
    if columns <= SHORT and "tile" in possible:
        return "tile", Settings(rows=16, elements=4096, warps="4")
    return "row", Settings(warps="4" if columns <= 2048 else "8" if columns <= 8192 else "16")


def program_source(program: Program, drafted: Mapping[int, str] | None = None) -> str:
    """The file of a program. `drafted` has the source of some stages by number.

    The template writes the others.
    """
    given = drafted or {}
    parts = []
    for number, stage in enumerate(program.stages):
        source = given.get(number) or kernel_source(stage, *usual_structure(stage))
        parts.append(
            _finished(source, stage, number if len(program.stages) > 1 else None, program.name)
        )
    body = "\n\n".join((*parts, host_code(program)))
    return IMPORTS + (LIBDEVICE if "libdevice." in body else "") + "\n\n" + body


def _finished(source: str, stage: Stage, number: int | None, name: str) -> str:
    """A stage's source with its constants' values, and with names that no other stage has."""

    def value(match: re.Match[str]) -> str:
        index = int(match[1])
        return literal(stage.constants[index]) if index < len(stage.constants) else match[0]

    source = _CONSTANT.sub(value, source)
    suffix = "" if number is None else str(number)
    title = re.sub(r"\W", "_", name)
    source = re.sub(r"\bkernel\b", f"{title}_kernel{suffix}", source)
    source = re.sub(r"\breduce_parts\b", f"{title}_parts{suffix}", source)
    source = re.sub(r"\bproduct\b", f"product{suffix}", source)
    return re.sub(r"\blaunch\b", f"launch{suffix}", source).strip("\n") + "\n"


def literal(value: float | int | bool) -> str:
    """A constant as Triton source."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    return f"({value!r})" if not isinstance(value, bool) and value < 0 else repr(value)


def host_code(program: Program) -> str:
    """The source of `run`. It calls `launch` for a single stage, else `launch0`, `launch1`, ...."""
    first = program.tensors[0]
    lines = [f"{name} = {name}.contiguous()" for name in program.tensors]
    allocated = (*program.outputs, *program.temporaries)
    lines += [
        f"{one.name} = torch.empty({_tuple(one)}, dtype={one.dtype}, device={first}.device)"
        for one in allocated
    ]
    for number, stage in enumerate(program.stages):
        name = "launch" if len(program.stages) == 1 else f"launch{number}"
        sizes = [(_unlike(size, program.arguments), text) for size, text in stage.sizes]
        lines += [f"{size} = {text}" for size, text in sizes]
        given = (*stage.reads, *stage.writes, *stage.numbers, *(size for size, _ in sizes))
        lines.append(f"{name}({', '.join(given)})")
    lines.append(f"return {', '.join(program.results)}")
    return f"def run({', '.join(program.arguments)}):\n" + "".join(
        f"    {line}\n" for line in lines
    )


def _unlike(name: str, arguments: Sequence[str]) -> str:
    """A local name that is no argument's."""
    while name in arguments:
        name += "_"
    return name


def _tuple(tensor: Tensor) -> str:
    return f"({', '.join(tensor.shape)}{',' if len(tensor.shape) == 1 else ''})"
