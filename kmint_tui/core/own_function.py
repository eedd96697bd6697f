"""The user's own function before it is minted: files and functions to choose from, and a check.

Listing runs nothing; `examine` runs the file.
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from convert import files
from kmint_tui import paths
from kmint_tui.errors import KmintError, storage_error
from referee.reference.asked import Asked

MOST_FILES, MOST_LOOKED_AT, DEEPEST = 100, 2000, 3
MOST_BYTES = 1 << 20
_SKIPPED = frozenset({"node_modules", "site-packages", "build", "dist", "__pycache__", "venv"})
_NO_REFERENCE = frozenset({"get_inputs", "get_init_inputs", "main"})


@dataclass(frozen=True)
class OwnFunction:
    """A function of a file, or a class with `forward`. `required` are parameters without default.

    `numbers` are parameters with a number as default. `has_inputs` is True where the file gives
    inputs.
    """

    name: str
    required: tuple[str, ...]
    numbers: tuple[tuple[str, float], ...]
    has_inputs: bool

    @property
    def shown(self) -> str:
        """`norm(x, weight, eps=1e-06)`."""
        numbers = [f"{name}={value!r}" for name, value in self.numbers]
        return f"{self.name}({', '.join((*self.required, *numbers))})"

    @property
    def guess(self) -> str:
        """Inputs to begin with: matrices, and numbers at their defaults.

        Empty where the file gives inputs.
        """
        if self.has_inputs:
            return ""
        tensors = [f"{name}=bf16[M,N]" for name in self.required]
        return " ".join((*tensors, *(f"{name}={value!r}" for name, value in self.numbers)))


@dataclass(frozen=True)
class Examined:
    """The description of a function: its arguments, sizes and graph; or the reason of a refusal."""

    lines: tuple[str, ...]
    refused: str = ""


def torch_files(folder: Path) -> list[Path]:
    """Python files below a folder that mention torch, the nearest first."""
    found: list[Path] = []
    for looked, path in enumerate(_python_files(folder)):
        if len(found) == MOST_FILES or looked == MOST_LOOKED_AT:
            break
        if b"torch" in _bytes(path):
            found.append(path)
    return found


def functions_of(path: Path) -> tuple[OwnFunction, ...]:
    """The functions and modules that a file defines; none where it cannot be read as Python."""
    try:
        tree = ast.parse(_bytes(path))
    except (SyntaxError, ValueError):
        return ()
    top = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    has_inputs = any(node.name == "get_inputs" for node in top) or any(
        isinstance(target, ast.Name) and target.id == "EXAMPLES"
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
    )
    return tuple(
        _function(node.name, own, has_inputs)
        for node in top
        if not node.name.startswith(("_", "test_")) and node.name not in _NO_REFERENCE
        and (own := _callable(node)) is not None
    )  # fmt: skip


def keep_pasted(text: str) -> Path:
    """A private file with this text, for minting and saving. Raises StorageError."""
    folder = paths.private_dir(paths.data_dir() / "pasted")
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = folder / f"pasted_{name}.py"
    try:
        files.write_text(path, text)
    except OSError as error:
        raise storage_error(path, error) from error
    return path


def examine(asked: Asked) -> Examined:
    """Load and trace the function, and describe it. Imports torch and runs the user's file."""
    from kmint_tui.core.planning import described_graph
    from kmint_tui.core.reference import reference_rows
    from kmint_tui.core.task import wanted_task
    from kmint_tui.graph.operations import program_of
    from kmint_tui.graph.program import OutOfScope
    from referee.problem import TaskName

    try:
        op, task = wanted_task(None, asked)
    except KmintError as error:
        return Examined(
            (), " ".join(part for part in (f"{error.title}: {error.message}", error.fix) if part)
        )
    assert isinstance(task, TaskName) and task.asked is not None
    shown = tuple(f"{name}: {text}" for name, text in reference_rows(task.asked) if name != "files")
    try:
        graph = described_graph(op, program_of(op, task))
    except OutOfScope as error:
        refused = (
            f"no graph: {error}; the embedded smith cannot draft it, a larger one reads its source"
        )
        return Examined(shown, refused)
    return Examined((f"graph: {graph}", *shown))


def _python_files(folder: Path) -> Iterator[Path]:
    for depth in range(DEEPEST):
        for path in sorted(folder.glob("*/" * depth + "*.py")):
            parts = path.relative_to(folder).parts
            if not any(part.startswith(".") or part in _SKIPPED for part in parts):
                yield path


def _bytes(path: Path) -> bytes:
    """The content of a plain file; empty for any other, a too large or an unreadable one."""
    try:
        if not path.is_file() or os.path.getsize(path) > MOST_BYTES:
            return b""
        return path.read_bytes()
    except OSError:
        return b""


def _callable(node: ast.FunctionDef | ast.ClassDef) -> ast.arguments | None:
    if isinstance(node, ast.FunctionDef):
        return node.args
    return next(
        (
            one.args
            for one in node.body
            if isinstance(one, ast.FunctionDef) and one.name == "forward"
        ),
        None,
    )


def _function(name: str, own: ast.arguments, has_inputs: bool) -> OwnFunction:
    listed = [argument.arg for argument in (*own.posonlyargs, *own.args) if argument.arg != "self"]
    defaults = dict(zip(reversed(listed), reversed(own.defaults), strict=False))
    numbers = [
        (one, default.value)
        for one in listed
        if isinstance(default := defaults.get(one), ast.Constant)
        and isinstance(default.value, (int, float))
        and not isinstance(default.value, bool)
    ]
    return OwnFunction(
        name, tuple(one for one in listed if one not in defaults), tuple(numbers), has_inputs
    )
